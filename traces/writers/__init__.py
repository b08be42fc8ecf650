"""Writers of trace formats, and what each of them cannot hold."""
