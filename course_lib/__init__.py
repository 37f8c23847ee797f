"""The companion package of the course "How models really train"."""
