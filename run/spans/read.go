package spans

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"understudy/graph"
	"understudy/run"
)

// Of returns the spans of a run in the order of their begins: those of its batches, those that its server has not stored yet, and what its row
// shows of queue and attempts. An attempt that was not recorded has its own span only.
func Of(r *run.Run, bodies [][]byte, live []Span) ([]Span, error) {
	byID := map[string]Span{}
	add := func(s Span) {
		if had, known := byID[s.ID]; !known || had.End.IsZero() {
			byID[s.ID] = s
		}
	}
	began := map[int]time.Time{}
	for _, body := range bodies {
		attempt, at, list, err := decode(body)
		if err != nil {
			return nil, err
		}
		began[attempt] = at
		for _, s := range list {
			add(s)
		}
	}
	for _, s := range live {
		add(s)
		if s.Kind == graph.AttemptSpan {
			began[s.Attempt] = s.Start
		}
	}
	fromRow(r, byID, began)
	latest := latest(byID)
	for ident, s := range byID {
		if s.End.IsZero() && (s.Attempt != r.Attempt || r.Status != run.Running) && s.Kind != graph.QueueSpan {
			s.Status = graph.SpanLost
			s.End = latest[s.Attempt]
			byID[ident] = s
		}
	}
	out := make([]Span, 0, len(byID))
	for _, s := range byID {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Span) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(depth(a.Kind), depth(b.Kind)), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// depth orders spans that begin at the same time.
func depth(k graph.SpanKind) int {
	return slices.Index([]graph.SpanKind{graph.QueueSpan, graph.AttemptSpan, graph.NodeSpan, graph.ModelSpan, graph.ToolSpan, graph.SaveSpan}, k)
}

// latest are the last times that are known of attempts.
func latest(byID map[string]Span) map[int]time.Time {
	at := map[int]time.Time{}
	for _, s := range byID {
		at[s.Attempt] = later(at[s.Attempt], later(s.Start, s.End))
	}
	return at
}

// fromRow adds what is known without batches: attempts, and the times in the queue before them.
func fromRow(r *run.Run, byID map[string]Span, began map[int]time.Time) {
	if r.Attempt > 0 && began[1].IsZero() && !r.StartedAt.IsZero() {
		began[1] = r.StartedAt
	}
	queued := r.CreatedAt
	for n := 1; n <= r.Attempt; n++ {
		ident := strconv.Itoa(n)
		at, known := began[n]
		if !known {
			continue
		}
		if _, ended := byID[ident]; !ended {
			s := Span{ID: ident, Attempt: n, Kind: graph.AttemptSpan, Name: r.Graph, Start: at, Status: graph.SpanRunning}
			if n == r.Attempt && r.Status.Over() {
				s.End, s.Status = r.EndedAt, statusOf(r)
			}
			byID[ident] = s
		}
		if !queued.IsZero() && at.After(queued) {
			byID["q"+ident] = Span{ID: "q" + ident, Attempt: n, Kind: graph.QueueSpan, Name: "queue", Start: queued, End: at, Status: graph.SpanSuccess}
		}
		queued = byID[ident].End
	}
	switch ident := "q" + strconv.Itoa(r.Attempt+1); {
	case r.Status == run.Pending && !queued.IsZero():
		byID[ident] = Span{ID: ident, Attempt: r.Attempt + 1, Kind: graph.QueueSpan, Name: "queue", Start: queued, Status: graph.SpanRunning}
	case r.Attempt == 0 && r.Status.Over():
		byID[ident] = Span{ID: ident, Attempt: 1, Kind: graph.QueueSpan, Name: "queue", Start: queued, End: later(r.EndedAt, queued), Status: graph.SpanCancelled}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// statusOf is the status of the last attempt of a run that is over.
func statusOf(r *run.Run) graph.SpanStatus {
	switch r.Status {
	case run.Success:
		return graph.SpanSuccess
	case run.Interrupted:
		return graph.SpanCancelled
	default:
		return graph.SpanError
	}
}
