package record

// init has each checkpoint recorded in a transaction of its own: so tests stop between any two.
func init() { commitTime = 0 }

// LimitSaid sets how many bytes of answers are kept.
func (r *Recorder) LimitSaid(n int) { r.said.limit = n }

// SaidBytes is how many bytes of answers are kept.
func (r *Recorder) SaidBytes() int {
	r.said.mu.Lock()
	defer r.said.mu.Unlock()
	return r.said.bytes
}
