package pregel

import (
	"time"

	"understudy/graph"
	"understudy/graph/message"
)

// In the stream mode messages each event repeats the whole message as far as it has come, and clients replace what they show by it. An event for each
// chunk of a long answer would send the square of its length, so from partialEach on an event is sent when the message has grown by a fraction of
// itself, or after the time in which partialRate sends the last one. What has come is shown within that time, and all of it before the task ends.
const (
	partialEach   = 4 << 10   // bytes of an event up to which each chunk has one
	partialGrowth = 32        // an event when the message has grown by 1/partialGrowth
	partialRate   = 256 << 10 // bytes a second
)

// partial is a message of which chunks have come.
type partial struct {
	tc    *taskContext
	sum   message.Sum
	ended bool // the last chunk has come
	shown int  // bytes of the last event
	at    time.Time
	grown int         // bytes of chunks since
	timer *time.Timer // shows what is held; nil: nothing is
}

// pause returns how long after an event the next one is due.
func (p *partial) pause() time.Duration { return time.Duration(p.shown) * time.Second / partialRate }

// chunk adds a chunk to its message, and shows the message if that is due. The caller holds m.mu.
func (m *messageStream) chunk(tc *taskContext, chunk message.Message) {
	p := m.partials[chunk.ID]
	if p == nil {
		p = &partial{}
		m.partials[chunk.ID] = p
	}
	p.tc = tc
	p.sum.Add(chunk)
	p.ended = p.ended || chunk.Last
	p.grown += len(chunk.Content.Text) + len(chunk.AdditionalKwargs)
	for _, block := range chunk.Content.Blocks {
		p.grown += len(block)
	}
	for _, c := range chunk.ToolCallChunks {
		p.grown += len(c.Args)
	}
	wait := p.pause() - time.Since(p.at)
	if p.ended || p.shown < partialEach || p.grown*partialGrowth >= p.shown || wait <= 0 {
		m.show(p)
		return
	}
	if p.timer == nil {
		m.held[p] = true
		p.timer = time.AfterFunc(wait, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if p.timer != nil && !p.tc.closed.Load() {
				m.show(p)
			}
		})
	}
}

// show emits a message as far as it has come. The caller holds m.mu.
func (m *messageStream) show(p *partial) {
	m.release(p)
	whole := p.sum.Partial()
	if p.ended && len(whole.ToolCallChunks) > 0 {
		whole.Complete() // as in the message that the node returns
	}
	b := append(whole.Whole().AppendJSON([]byte{'['}), ']')
	x := p.tc.l.x
	x.out.push(x.ctx, graph.Event{Name: "messages/partial", Data: b})
	p.shown, p.grown, p.at = len(b), 0, time.Now()
}

// release forgets that an event is due. The caller holds m.mu.
func (m *messageStream) release(p *partial) {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
		delete(m.held, p)
	}
}

// flush shows what has come of the messages of a task; nil: of all.
func (m *messageStream) flush(tc *taskContext) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.held {
		switch {
		case tc != nil && p.tc != tc:
		case p.tc.closed.Load(): // nothing of it is shown any more
			m.release(p)
		default:
			m.show(p)
		}
	}
}
