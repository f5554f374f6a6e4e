"""What commands read, by its name on the command line: arrays, labels, models, releases, …"""
