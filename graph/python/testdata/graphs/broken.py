raise RuntimeError("this module does not import")
