package webhook

import (
	"net/url"
	"strings"
	"time"
)

const (
	senders      = 32  // requests at a time in all
	perReceiver  = 4   // to one receiver
	slowSenders  = 16  // to receivers that are slow, one to each
	heldAtMost   = 112 // so that the last of them begins within TakeTime, even when all receivers hang
	slowReceiver = 5 * time.Second
	slowFor      = 10 * time.Minute // without being asked again
)

// TakeTime is how long deliveries that a server has taken from a shared outbox are left to it: longer than those to one receiver can take.
const TakeTime = 2 * time.Minute

// origin is the scheme and host of an address: what one receiver is taken to be.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// receiver is the server at an origin.
type receiver struct {
	queue   []*Delivery // read from the outbox, not being sent
	sending int
	slow    time.Time // it took long to answer; zero: it did not
}

// dispatcher decides which delivery is sent next: those due longest first, but so that a receiver that hangs holds up only its own. It belongs to one
// goroutine.
type dispatcher struct {
	receivers     map[string]*receiver
	held          map[int64]bool // those in queues and those being sent
	sending, slow int
}

func newDispatcher() *dispatcher {
	return &dispatcher{receivers: map[string]*receiver{}, held: map[int64]bool{}}
}

// query asks for what could be sent now.
func (d *dispatcher) query(by time.Time) Query {
	q := Query{By: by, PerOrigin: perReceiver, Limit: heldAtMost - len(d.held)}
	for name, r := range d.receivers {
		if n := len(r.queue) + r.sending; n >= perReceiver || n > 0 && !r.slow.IsZero() {
			q.Skip = append(q.Skip, name)
		}
	}
	return q
}

// add takes what was found. Without a take of its own a storage finds again what is being sent.
func (d *dispatcher) add(found []*Delivery) (added int) {
	for _, one := range found {
		if d.held[one.ID] {
			continue
		}
		d.held[one.ID] = true
		r := d.receivers[one.Origin]
		if r == nil {
			r = &receiver{}
			d.receivers[one.Origin] = r
		}
		r.queue = append(r.queue, one)
		added++
	}
	return added
}

// next is a delivery to send now; nil when none may be.
func (d *dispatcher) next() *Delivery {
	if d.sending >= senders {
		return nil
	}
	var best *receiver
	for _, r := range d.receivers {
		switch {
		case len(r.queue) == 0 || r.sending >= perReceiver:
		case !r.slow.IsZero() && (r.sending > 0 || d.slow >= slowSenders):
		case best == nil || r.queue[0].Due.Before(best.queue[0].Due):
			best = r
		}
	}
	if best == nil {
		return nil
	}
	one := best.queue[0]
	best.queue = best.queue[1:]
	best.sending++
	d.sending++
	if !best.slow.IsZero() {
		d.slow++
	}
	return one
}

// sent notes the end of an attempt that next began.
func (d *dispatcher) sent(one *Delivery, slow bool, now time.Time) {
	r := d.receivers[one.Origin]
	delete(d.held, one.ID)
	d.sending--
	if !r.slow.IsZero() {
		d.slow--
	}
	r.sending--
	was := r.slow
	switch {
	case slow:
		r.slow = now
	case r.sending == 0:
		r.slow = time.Time{}
	}
	// What else is being sent to it counts as slow from now on, or no longer.
	if was.IsZero() && !r.slow.IsZero() {
		d.slow += r.sending
	}
	for name, r := range d.receivers {
		if r.sending == 0 && len(r.queue) == 0 && now.Sub(r.slow) > slowFor {
			delete(d.receivers, name)
		}
	}
}
