package gate

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"understudy/internal/fault"
)

// ask sends a question to the process and waits for the answer. With errSlow there is one too: it says which handler did not answer.
func (g *Gate) ask(ctx context.Context, do string, rest func([]byte, *process) []byte) (*answer, error) {
	leave, err := g.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return g.askEntered(ctx, do, 1, rest)
}

// enter takes a place for a question, which leave frees.
func (g *Gate) enter() (leave func(), err error) {
	select {
	case g.slots <- struct{}{}:
		return func() { <-g.slots }, nil
	default:
		g.metrics.refused.WithLabelValues("full").Inc()
		return nil, errFull
	}
}

// askEntered is ask for a question that has its place, and that so many handlers answer. Each has its own time, and the process ends those that it can after that.
func (g *Gate) askEntered(ctx context.Context, do string, handlers int, rest func([]byte, *process) []byte) (*answer, error) {
	began := time.Now()
	each := g.opts.Timeout
	switch do {
	case "embed":
		each = max(each, embedTimeout)
	case "tool":
		each = longestCall
	}
	timeout, cancel := context.WithTimeoutCause(ctx, time.Duration(handlers)*each, errSlow)
	defer cancel()
	starting := timeout
	if handlers > 1 { // a process that is down is awaited for the time of one
		starting, cancel = context.WithTimeoutCause(timeout, each, errSlow)
		defer cancel()
	}
	c := &call{result: make(chan []byte, 1)}
	a := &answer{awaited: waits{handler: handlerOf(do)}}
	var slow *time.Timer
	var raw []byte
	err := errLeft
	for errors.Is(err, errLeft) {
		if a.process, err = g.process(starting); err != nil {
			g.metrics.refused.WithLabelValues("down").Inc()
			return a, err
		}
		if slow == nil && do != "embed" && do != "tool" {
			p := a.process
			slow = time.AfterFunc(g.slowAnswer+time.Second, func() { g.logUnplaced(timeout, p, c, do, began) })
			defer slow.Stop()
		}
		raw, err = a.process.call(timeout, c, do, rest)
	}
	switch {
	case errors.Is(err, errSlow):
		a.awaited = g.awaited(c, c.part(do))
		g.gaveUp(a.process, a.awaited, time.Duration(handlers)*each)
	case errors.Is(err, errDown):
		g.metrics.refused.WithLabelValues("down").Inc()
	}
	if err != nil {
		return a, err
	}
	g.metrics.took(do, began)
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, fault.Wrap(fault.Internal, "the answer of the gate cannot be read", err)
	}
	if a.Slow {
		if a.Actor != nil {
			do = "decide"
		}
		a.awaited = g.awaited(c, do)
	}
	return a, nil
}

// call is a question that a process has not answered yet.
type call struct {
	result chan []byte           // has room for the answer; closed when the process ends
	waits  atomic.Pointer[waits] // the last report of the handler that it waits for
}

// errLeft: the process takes no more calls, and has not seen this one. Another one is in service, or is starting.
var errLeft = errors.New("the process has left")

// call sends a call to the process. The error is errLeft when it has not, errDown when the process ends, and the cause of ctx when that does.
func (p *process) call(ctx context.Context, c *call, do string, rest func([]byte, *process) []byte) ([]byte, error) {
	p.mu.Lock()
	if p.closed || p.left {
		p.mu.Unlock()
		return nil, errLeft
	}
	number := p.number()
	p.calls[number] = c
	p.mu.Unlock()
	err := p.out.Add(func(b []byte) []byte {
		b = append(b, toCall, byte(number>>24), byte(number>>16), byte(number>>8), byte(number))
		b = append(append(append(b, `{"do":"`...), do...), '"')
		return append(rest(b, p), '}')
	})
	if err == nil {
		select {
		case raw, ok := <-c.result:
			if !ok {
				return nil, errDown
			}
			return raw, nil
		case <-ctx.Done():
			err = context.Cause(ctx)
			_ = p.out.send(toCancel, number, nil)
		}
	} else {
		err = fault.Wrap(fault.TooLarge, "The request is too large to be authorized", err)
	}
	p.mu.Lock()
	delete(p.calls, number)
	p.freed()
	p.mu.Unlock()
	return nil, err
}

// number returns a free number for a call or stream. The caller holds mu.
func (p *process) number() uint32 {
	for {
		p.next = (p.next + 1) % theirs
		_, call := p.calls[p.next]
		_, open := p.open[p.next]
		if p.next != 0 && !call && !open {
			return p.next
		}
	}
}
