"""The shipped profiles: one JSON file each, written by `fleetsim.calibration.fit_aic`."""
