"""The compiled form: the same names as the pure one."""
