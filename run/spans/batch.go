package spans

import (
	"understudy/graph"
	"understudy/id"
	"understudy/run"
)

// Batch is what one transaction stores of an attempt. It is encoded before the transaction, which only writes. A nil Batch stores nothing.
type Batch struct {
	row  run.SpanBatch
	upTo int // how many spans there were up to its last one
}

// Batch encodes the spans that wait; nil if none does. Pass it to Stored after the commit.
func (r *Recorder) Batch() *Batch {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	list, number, upTo := r.pending[:len(r.pending):len(r.pending)], r.batch, r.stored+len(r.pending)
	r.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	return &Batch{r.row(number, len(list), encode(r.opts.Attempt, r.began, list)), upTo}
}

func (r *Recorder) row(number int64, spans int, body []byte) run.SpanBatch {
	return run.SpanBatch{Number: int64(r.opts.Attempt)<<32 | number, Spans: spans, At: r.opts.Now(), Body: body}
}

// Put stores the batch. The transaction may be repeated.
func (b *Batch) Put(tx run.SpanTx, of id.Run) error {
	if b == nil {
		return nil
	}
	return tx.PutSpans(of, &b.row)
}

// Stored forgets the spans of a batch that is committed.
func (r *Recorder) Stored(b *Batch) {
	if r == nil || b == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := b.upTo - r.stored; n > 0 {
		r.pending, r.stored = append([]Span(nil), r.pending[n:]...), b.upTo
		r.batch++
		r.flushed = r.opts.Now()
	}
}

// Last is the last batch of an attempt that has ended. A nil Last stores nothing.
type Last struct {
	of      *Recorder
	row     run.SpanBatch
	others  int // bytes of the body before the span of the attempt
	attempt Span
}

// Last encodes what is left of an attempt that has ended: open spans end with it.
func (r *Recorder) Last(status graph.SpanStatus, failure *graph.Failure) *Last {
	if r == nil || !r.opts.Store {
		return nil
	}
	now := r.opts.Now()
	r.mu.Lock()
	list, number := append([]Span(nil), r.pending...), r.batch
	for _, o := range r.open {
		s := o.Span
		s.End, s.Status = now, openStatus(status)
		list = append(list, s)
	}
	l := &Last{of: r, attempt: Span{
		ID: r.ident(0), Attempt: r.opts.Attempt, Kind: graph.AttemptSpan, Name: r.opts.Graph, Start: r.began, End: now, Dropped: r.dropped,
	}}
	r.mu.Unlock()
	body := appendSpans(begin(r.opts.Attempt, r.began), list)
	l.row, l.others = r.row(number, len(list)+1, body), len(body)
	l.end(status, failure)
	return l
}

// end adds the span of the attempt to the body.
func (l *Last) end(status graph.SpanStatus, failure *graph.Failure) {
	s := l.attempt
	s.Status = status
	if failure != nil {
		s.Error = &graph.Failure{Type: failure.Type}
		if l.of.opts.Level == Content {
			s.Error.Message, s.Error.Detail = failure.Message, failure.Detail
		}
	}
	l.attempt.Status, l.row.Body = status, append(appendSpans(l.row.Body[:l.others], []Span{s}), end...)
}

// Put stores the batch. The transaction may have found that the attempt ended in another way than that of Last, as when a cancel came first; only the
// span of the attempt is encoded again then.
func (l *Last) Put(tx run.SpanTx, of id.Run, status graph.SpanStatus, failure *graph.Failure) error {
	if l == nil {
		return nil
	}
	if status != l.attempt.Status {
		l.end(status, failure)
	}
	return tx.PutSpans(of, &l.row)
}

// openStatus is the status of spans that had not ended when their attempt did.
func openStatus(attempt graph.SpanStatus) graph.SpanStatus {
	if attempt == graph.SpanLost {
		return graph.SpanLost
	}
	return graph.SpanCancelled
}
