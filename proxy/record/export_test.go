package record

// init has each checkpoint recorded in a transaction of its own: so tests stop between any two.
func init() { commitTime = 0 }
