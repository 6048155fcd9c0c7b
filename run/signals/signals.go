// Package signals notifies other servers of what happens here.
package signals

import (
	"context"
	"log/slog"
	"time"

	"understudy/run"
)

// signalQueue bounds the signals that wait to be sent. When it is full the rest is dropped: heartbeats find those changes.
const signalQueue = 256

// Sender notifies other servers of what happens here. nil: there are no others. Methods are safe for concurrent use.
type Sender struct {
	shared   sender
	instance string
	local    bool          // other servers do not see the records of runs that are executed here
	timeout  time.Duration // of sending
	log      *slog.Logger
	queue    chan run.Signal
	wakeups  chan run.Signal // capacity 1: the zero Signal, there may be runs to claim, is to be sent
}

// sender sends signals to all servers. They may be lost.
type sender interface {
	Send(ctx context.Context, s ...run.Signal) error
}

// New makes the sender of an instance. With local, others do not see the records of runs that are executed here. timeout bounds sending.
func New(shared sender, instance string, local bool, timeout time.Duration, log *slog.Logger) *Sender {
	return &Sender{
		shared: shared, instance: instance, local: local, timeout: timeout, log: log,
		queue: make(chan run.Signal, signalQueue), wakeups: make(chan run.Signal, 1),
	}
}

// Send queues one to be sent. It does not block.
func (s *Sender) Send(sig run.Signal) {
	if s == nil {
		return
	}
	c := s.queue
	if sig == (run.Signal{}) {
		c = s.wakeups // one is as good as many
	}
	select {
	case c <- sig:
	default:
	}
}

// Run sends signals until ctx ends, and then those that wait.
func (s *Sender) Run(ctx context.Context) {
	if s == nil {
		return
	}
	for {
		var sig run.Signal
		select {
		case sig = <-s.queue:
		case sig = <-s.wakeups:
		case <-ctx.Done():
			select {
			case sig = <-s.queue:
			case sig = <-s.wakeups:
			default:
				return
			}
		}
		batch := []run.Signal{sig}
	more:
		for len(batch) < cap(s.queue) {
			select {
			case sig = <-s.queue:
				batch = append(batch, sig)
			default:
				break more
			}
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		if err := s.shared.Send(limited, batch...); err != nil {
			s.log.WarnContext(ctx, "other servers could not be notified; they notice at their next heartbeat", "error", err)
		}
		cancel()
	}
}

// Ended notifies other servers that a run is over, when they cannot see it in its stream.
func (s *Sender) Ended(r *run.Run) {
	if s != nil && s.local {
		s.Send(run.Signal{Thread: r.Thread, Run: r.ID, Ended: s.instance})
	}
}
