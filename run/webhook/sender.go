package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"understudy/internal/jsonobj"
	"understudy/internal/loop"
)

const maxAttempts = 6 // at once, and after 1 s, 5 s, 25 s, 2 min, 10 min

// Outbox is the storage of deliveries.
type Outbox interface {
	// Due returns deliveries that are due, those due longest first, and when the next one that is not is due (zero: none). Of an outbox that other servers
	// send from, it takes them for TakeTime: no other server gets them meanwhile.
	Due(ctx context.Context, q Query) (due []*Delivery, next time.Time, err error)
	Update(ctx context.Context, d *Delivery) error
	Delete(ctx context.Context, d *Delivery) error
}

// Sender sends what is in the outbox, each entry until it was accepted or too often refused.
type Sender struct {
	outbox            Outbox
	policy            *Policy
	log               *slog.Logger
	now               func() time.Time
	poked             chan struct{}
	delivered, failed prometheus.Counter
}

// NewSender makes a Sender; Run makes it work. registry takes its metrics; nil: they are not reported.
func NewSender(outbox Outbox, policy *Policy, log *slog.Logger, now func() time.Time, registry prometheus.Registerer) *Sender {
	tried := promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: "understudy_webhooks_total", Help: "Webhooks that were tried, by result."}, []string{"result"})
	return &Sender{
		outbox: outbox, policy: policy, log: log, now: now, poked: make(chan struct{}, 1),
		delivered: tried.WithLabelValues("sent"), failed: tried.WithLabelValues("failed"),
	}
}

// Poke says that the outbox may have something that is due. It does not block.
func (s *Sender) Poke() { loop.Poke(s.poked) }

// Run sends until ctx ends, and then returns when nothing is being sent any more.
func (s *Sender) Run(ctx context.Context) error {
	client := s.policy.client()
	defer client.CloseIdleConnections()
	type result struct {
		delivery *Delivery
		slow     bool
	}
	d := newDispatcher()
	results := make(chan result, senders)
	defer func() {
		for d.sending > 0 {
			r := <-results
			d.sent(r.delivery, r.slow, s.now())
		}
	}()
	return loop.Loop{Name: "webhooks", Log: s.log, Now: s.now}.Run(ctx, s.poked, func(ctx context.Context) (time.Time, error) {
		for len(results) > 0 {
			r := <-results
			d.sent(r.delivery, r.slow, s.now())
		}
		for {
			var next time.Time
			added := 0
			if q := d.query(s.now()); q.Limit > 0 {
				found, after, err := s.outbox.Due(ctx, q)
				if err != nil {
					return next, err
				}
				next, added = after, d.add(found)
			}
			for one := d.next(); one != nil; one = d.next() {
				go func() {
					results <- result{one, s.send(ctx, client, one)}
					s.Poke()
				}()
			}
			if added == 0 || d.sending >= senders {
				return next, nil // the end of what is being sent pokes
			}
		}
	})
}

// send makes one attempt and writes its outcome.
func (s *Sender) send(ctx context.Context, client *http.Client, d *Delivery) (slow bool) {
	began := time.Now()
	err := s.post(ctx, client, d)
	slow = time.Since(began) > slowReceiver
	if ctx.Err() != nil {
		return slow // it stays in the outbox
	}
	d.Attempts++
	if err == nil {
		s.delivered.Inc()
	} else {
		s.failed.Inc()
	}
	done := err == nil || d.Attempts >= maxAttempts || errors.Is(err, errAddress)
	if err != nil {
		level := s.log.WarnContext
		if done {
			level = s.log.ErrorContext
		}
		level(ctx, "webhook not delivered", "run_id", d.Run, "attempt", d.Attempts, "given_up", done, "error", err)
	}
	if done {
		err = s.outbox.Delete(ctx, d)
	} else {
		wait := time.Second
		for range d.Attempts - 1 {
			wait *= 5
		}
		d.Due = s.now().Add(min(wait, 10*time.Minute))
		err = s.outbox.Update(ctx, d)
	}
	if err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "cannot write the outbox", "run_id", d.Run, "error", err)
	}
	return slow
}

func (s *Sender) post(ctx context.Context, client *http.Client, d *Delivery) error {
	body, header := jsonobj.Of(d.Body), http.Header{"Content-Type": {"application/json"}}
	for k, v := range s.policy.Headers {
		header.Set(k, v)
	}
	sent := push(body, header)
	if sent == nil {
		if s.policy.allows("webhook_sent_at") {
			body.SetText("webhook_sent_at", s.now().UTC().Format(timeLayout))
		}
		sent = body.JSON()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	req.Header = header
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 64<<10); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the receiver answered %s", res.Status)
	}
	return nil
}
