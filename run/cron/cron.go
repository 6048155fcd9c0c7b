// Package cron keeps schedules, and makes the runs that are due by them.
package cron

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"understudy/access"
	"understudy/id"
	"understudy/internal/cronexpr"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/limits"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/clock"
	"understudy/run/webhook"
)

// errNever refuses a schedule whose date never occurs, such as the 30th of February.
var errNever = fault.New(fault.Invalid, "failed to find next date")

// zoneOf returns a time zone by its IANA name; "" is UTC.
func zoneOf(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" { // Go's name of the zone of this machine, which is another one on each server
		return nil, fault.Newf(fault.Unprocessable, "Invalid timezone: '%s'. Use IANA timezone format (e.g. 'America/New_York').", name)
	}
	return zone, nil
}

// nextTime is when a schedule fires after a time; nil when it never does again before its end.
func nextTime(c *run.Cron, after time.Time) (*time.Time, error) {
	zone, err := zoneOf(c.Timezone)
	if err != nil {
		return nil, err
	}
	schedule, err := cronexpr.Parse(c.Schedule)
	if err != nil {
		return nil, fault.Newf(fault.Unprocessable, "Invalid cron schedule: '%s'. Reason: %v. Write five fields (minute hour day_of_month month day_of_week), such as '*/5 * * * *' "+
			"for every 5 minutes; a sixth is seconds, a seventh years. Or @hourly, @daily, @weekly, @monthly or @yearly.", c.Schedule, err)
	}
	next := schedule.Next(after.In(zone))
	if next.IsZero() {
		return nil, errNever
	}
	next = next.UTC()
	if c.EndTime != nil && next.After(*c.EndTime) {
		return nil, nil
	}
	return &next, nil
}

// Upcoming returns the next times of a cron after a time, at most n, in its time zone. They end with the cron, and are those of its schedule also while it is paused.
func Upcoming(c *run.Cron, after time.Time, n int) ([]time.Time, error) {
	zone, err := zoneOf(c.Timezone)
	if err != nil {
		return nil, err
	}
	times := make([]time.Time, 0, n)
	for len(times) < n {
		next, err := nextTime(c, after)
		if errors.Is(err, errNever) || err == nil && next == nil {
			break
		}
		if err != nil {
			return nil, err
		}
		times = append(times, next.In(zone))
		after = *next
	}
	return times, nil
}

var errNoCron = fault.New(fault.NotFound, "Not Found")

// Runs makes the runs of crons.
type Runs interface {
	// ResolveAssistant returns the assistant of an id or of the name of a graph, without looking whether there is one.
	ResolveAssistant(name string) (id.Assistant, error)
	// CreateIn calls fn in a transaction, in which add makes runs; fn may be called again. After the commit the runs are executed.
	CreateIn(ctx context.Context, fn func(tx run.CronTx, add Add) error) error
}

// Add makes a run on a thread in a transaction. The thread of a stateless one is made for it.
type Add func(t id.Thread, a id.Assistant, stateless bool, req *run.Request) (*run.Run, error)

// Options are what crons are made of.
type Options struct {
	Store    Store
	Runs     Runs
	Clock    *clock.Clock
	Wire     run.Wire
	Webhooks *webhook.Policy
	// Admit asks whether a cron may make a run, and lets the run act as who created the cron. Its error refuses the run. It may take its time. nil:
	// every run may be made.
	Admit func(ctx context.Context, c *run.Cron, req *run.Request) error
	// Tasks returns how scheduled tasks are run; nil: not here, as on servers without a DeerFlow installation.
	Tasks func() TaskRules
	Log   *slog.Logger
}

// Store is what crons need of the storage.
type Store interface {
	Write(ctx context.Context, fn func(run.Tx) error) error
	run.CronReader
	Run(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error)
}

// Crons keeps schedules and makes the runs that are due by them.
type Crons struct {
	Options
	poked chan struct{} // capacity 1: the next cron changed
}

// New makes crons; Run makes them fire.
func New(o Options) *Crons { return &Crons{Options: o, poked: make(chan struct{}, 1)} }

// Run fires crons until ctx ends.
func (s *Crons) Run(ctx context.Context) error {
	return loop.Loop{Name: "crons", Log: s.Log, Now: s.Clock.Now}.Run(ctx, s.poked, s.fireDue)
}

// Poke has the next due time looked up again: another server may have changed a cron.
func (s *Crons) Poke() { loop.Poke(s.poked) }

// Create makes a cron.
func (s *Crons) Create(ctx context.Context, n run.NewCron) (*run.Cron, error) {
	// The order of the checks is LangGraph Server's: it decides which of several mistakes a client sees.
	if err := s.Webhooks.Check(gjson.ParseBytes(n.Payload["webhook"]).String()); err != nil {
		return nil, err
	}
	a, err := s.Runs.ResolveAssistant(n.AssistantID)
	if err != nil {
		return nil, fault.Newf(fault.NotFound, "Assistant '%s' not found", n.AssistantID)
	}
	if err := limits.Metadata(n.Metadata); err != nil {
		return nil, err
	}
	now := s.Clock.Now()
	c := &run.Cron{
		ID: cmp.Or(n.ID, id.NewCron()), Assistant: a, Thread: n.Thread, Schedule: n.Schedule, Timezone: n.Timezone, EndTime: n.EndTime,
		Metadata: n.Metadata, OnRunCompleted: n.OnRunCompleted, Enabled: n.Enabled, CreatedAt: now, UpdatedAt: now,
	}
	if len(c.Metadata) == 0 {
		c.Metadata = json.RawMessage(`{}`)
	}
	if c.Thread == "" && c.OnRunCompleted == "" {
		c.OnRunCompleted = "delete"
	}
	var never error
	if c.Next, err = nextTime(c, now); errors.Is(err, errNever) {
		never = err
	} else if err != nil {
		return nil, err
	}
	payload := &jsonobj.Object{}
	payload.SetText("assistant_id", string(a))
	for _, k := range slices.Sorted(maps.Keys(n.Payload)) {
		if k != "assistant_id" {
			payload.Set(k, n.Payload[k])
		}
	}
	c.Payload = withCronID(payload, c.ID, encryption.Of(ctx))
	err = s.Store.Write(ctx, func(tx run.Tx) error {
		if _, err := tx.Assistant(a); err != nil {
			return fault.Newf(fault.NotFound, "Assistant '%s' not found", n.AssistantID)
		}
		if c.Thread != "" {
			if _, err := tx.Thread(c.Thread); fault.Is(err, fault.NotFound) {
				return fault.Newf(fault.NotFound, "Thread with ID %s not found", c.Thread)
			} else if err != nil {
				return err
			}
		}
		if never != nil {
			return never
		}
		return tx.InsertCron(c)
	})
	if err != nil {
		return nil, err
	}
	s.Poke()
	return c, nil
}

// withCronID writes what clients cannot into the configuration of the runs: which cron makes them, and the context that they are encrypted in.
func withCronID(payload *jsonobj.Object, c id.Cron, in encryption.Context) json.RawMessage {
	return withConfigurable(payload, func(configurable *jsonobj.Object) {
		configurable.SetText("cron_id", string(c))
		encryption.Write(configurable, in)
	})
}

// withConfigurable returns a payload with what write has changed in the configurable of its configuration.
func withConfigurable(payload *jsonobj.Object, write func(configurable *jsonobj.Object)) json.RawMessage {
	config := jsonobj.Of(payload.Get("config"))
	configurable := jsonobj.Of(config.Get("configurable"))
	write(configurable)
	config.Set("configurable", configurable.JSON())
	payload.Set("config", config.JSON())
	return payload.JSON()
}

// Get returns a cron.
func (s *Crons) Get(ctx context.Context, c id.Cron) (*run.Cron, error) {
	row, err := s.Store.Cron(ctx, c)
	if fault.Is(err, fault.NotFound) || err == nil && row.Account != "" {
		return nil, errNoCron
	}
	return row, err
}

// Update changes a cron. A changed schedule, zone or end counts from now.
func (s *Crons) Update(ctx context.Context, c id.Cron, p run.CronPatch) (*run.Cron, error) {
	if err := s.checkPatch(p); err != nil {
		return nil, err
	}
	var row *run.Cron
	err := s.Store.Write(ctx, func(tx run.Tx) error {
		var err error
		if row, err = cronIn(tx, c); err != nil {
			return err
		}
		now := s.Clock.Now()
		row.UpdatedAt = now
		if p.Schedule != nil {
			row.Schedule = *p.Schedule
		}
		if p.Timezone != nil {
			row.Timezone = *p.Timezone
		}
		if p.EndTime != nil {
			row.EndTime = p.EndTime
		}
		if p.ClearEndTime {
			row.EndTime = nil
		}
		if p.Enabled != nil {
			row.Enabled = *p.Enabled
		}
		if p.Metadata != nil {
			if row.Metadata, err = limits.MergeMetadata(row.Metadata, p.Metadata); err != nil {
				return err
			}
		}
		if p.OnRunCompleted != nil {
			row.OnRunCompleted = *p.OnRunCompleted
		}
		if len(p.Payload) > 0 {
			payload := jsonobj.Of(row.Payload)
			for _, k := range slices.Sorted(maps.Keys(p.Payload)) {
				payload.Set(k, p.Payload[k])
			}
			row.Payload = withCronID(payload, row.ID, encryption.OfRun(jsonobj.Of(row.Payload).Get("config")))
		}
		if row.Next, err = nextTime(row, now); err != nil {
			return err
		}
		return tx.UpdateCron(row)
	})
	if fault.Is(err, fault.NotFound) {
		return nil, fault.Newf(fault.NotFound, "Cron '%s' not found", c)
	}
	if err != nil {
		return nil, err
	}
	s.Poke()
	return row, nil
}

// cronIn returns a cron that is no scheduled task.
func cronIn(tx run.CronTx, c id.Cron) (*run.Cron, error) {
	row, err := tx.Cron(c)
	if err == nil && row.Account != "" {
		err = errNoCron
	}
	return row, err
}

// checkPatch refuses what no cron can be changed to.
func (s *Crons) checkPatch(p run.CronPatch) error {
	if err := s.Webhooks.Check(gjson.ParseBytes(p.Payload["webhook"]).String()); err != nil {
		return err
	}
	if p.Timezone == nil {
		return nil
	}
	_, err := zoneOf(*p.Timezone)
	return err
}

// Delete removes a cron. Runs that it made are not affected.
func (s *Crons) Delete(ctx context.Context, c id.Cron) error {
	err := s.Store.Write(ctx, func(tx run.Tx) error {
		if _, err := cronIn(tx, c); err != nil {
			return err
		}
		return tx.DeleteCron(c)
	})
	if fault.Is(err, fault.NotFound) {
		return errNoCron
	}
	return err
}

// Search returns a page, and whether there is another one behind it.
func (s *Crons) Search(ctx context.Context, q run.CronQuery) ([]*run.Cron, bool, error) {
	limit := q.Limit
	if limit > 0 {
		q.Limit++
	}
	page, err := s.Store.Crons(ctx, q)
	if err != nil {
		return nil, false, err
	}
	if limit > 0 && len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

// Count is the number that Search would find in all.
func (s *Crons) Count(ctx context.Context, q run.CronQuery) (int, error) {
	return s.Store.CountCrons(ctx, q)
}

// cronBatch is how many crons fire in one transaction: enough for thousands that are due in the same minute, few enough not to hold up other writers.
const cronBatch = 64

// rulesEvery is how often the rules of scheduled tasks are read at least: nothing pokes when they change.
const rulesEvery = 30 * time.Second

// fireDue makes one run for each due cron and moves the cron on in the same transaction: it fires once, whatever happens. What was missed while the
// server was down is made up for by one run. It returns when the next cron is due, or the rules of scheduled tasks are read again.
func (s *Crons) fireDue(ctx context.Context) (time.Time, error) {
	for {
		now, sure, err := s.Clock.Sure(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if !sure {
			return now.Add(clock.Retry), nil
		}
		rules := s.rules()
		fired, waiting, err := s.fireBatch(ctx, now, rules)
		if err != nil {
			return time.Time{}, err
		}
		if fired == 0 {
			next, err := s.Store.NextCron(ctx, rules.Scheduled && !waiting)
			now := s.Clock.Now()
			if err == nil && !next.IsZero() && !next.After(now) {
				next = now.Add(100 * time.Millisecond) // another instance is about to fire it
			}
			again := rulesEvery
			if waiting {
				again = taskPause
			}
			if again := now.Add(again); s.Tasks != nil && (next.IsZero() || next.After(again)) {
				next = again
			}
			return next, err
		}
	}
}

// fireBatch fires those that are due longest by a time. It returns how many, and whether tasks wait until fewer runs of tasks are active.
func (s *Crons) fireBatch(ctx context.Context, now time.Time, rules TaskRules) (fired int, waiting bool, err error) {
	admitted, err := s.admit(ctx, now, rules.Scheduled)
	if err != nil {
		return 0, false, err
	}
	err = s.Runs.CreateIn(ctx, func(tx run.CronTx, add Add) error {
		fired, waiting = 0, false
		due, room, err := dueIn(tx, now, rules)
		if err != nil {
			return err
		}
		// What was not asked about is left for the next batch.
		due = slices.DeleteFunc(due, func(c *run.Cron) bool { return s.asks(c) && admitted[c.ID].of(c) == nil })
		// In the same order everywhere: a storage that locks threads one by one must not find two transactions that wait for each other.
		slices.SortStableFunc(due, func(a, b *run.Cron) int { return strings.Compare(string(a.Thread), string(b.Thread)) })
		for _, c := range due {
			if c.Account != "" {
				refused, err := s.fireTask(tx, add, c, now, room, admitted[c.ID], false)
				if err != nil {
					return err
				}
				if errors.Is(refused, errTaskLimit) {
					waiting = true
				} else {
					fired++
				}
				continue
			}
			fired++
			if c.Next, err = nextTime(c, now); err != nil {
				s.Log.ErrorContext(ctx, "cron has no valid schedule any more; it is switched off", "cron_id", c.ID, "error", err)
				c.Next, c.Enabled = nil, false
			}
			if err := tx.UpdateCron(c); err != nil {
				return fmt.Errorf("move cron %s on: %w", c.ID, err)
			}
			if err := s.fire(add, c, admitted[c.ID]); err != nil {
				if mayWork(err) {
					return err
				}
				s.Log.WarnContext(ctx, "cron could not make its run", "cron_id", c.ID, "error", err)
			}
		}
		return nil
	})
	return fired, waiting, err
}

// dueIn returns crons that are due, and if there are tasks among them, how many runs of tasks may be made. Tasks that wait do not keep other crons out.
func dueIn(tx run.CronTx, now time.Time, rules TaskRules) ([]*run.Cron, *room, error) {
	due, err := tx.DueCrons(now, cronBatch, rules.Scheduled)
	if err != nil || !slices.ContainsFunc(due, func(c *run.Cron) bool { return c.Account != "" }) {
		return due, nil, err
	}
	room, err := roomIn(tx, rules)
	if err != nil || !room.full() || len(due) < cronBatch {
		return due, room, err
	}
	others, err := tx.DueCrons(now, cronBatch, false)
	due = slices.DeleteFunc(due, func(c *run.Cron) bool { return c.Account == "" })
	return append(due, others...), room, err
}

// mayWork reports whether what failed may work the next time. An answer of the policy is none of that.
func mayWork(err error) bool {
	if refusal := new(access.Refusal); errors.As(err, &refusal) {
		return refusal.Status >= http.StatusInternalServerError
	}
	kind := fault.KindOf(err)
	return kind == fault.Internal || kind == fault.Unavailable
}

// request is the run that a cron makes.
func (s *Crons) request(c *run.Cron) (*run.Request, error) {
	req, err := s.Wire.Request(asSent(c.Payload), c.Thread == "" && c.Account == "")
	if err != nil {
		return nil, err
	}
	req.RequestID, req.Encryption = string(id.NewRun()), encryption.OfRun(jsonobj.Of(c.Payload).Get("config"))
	if c.Account == "" {
		req.Cron = c.ID
	}
	if c.Thread == "" && c.Account == "" {
		req.OnCompletion = c.OnRunCompleted
	}
	return &req, nil
}

// asSent returns a payload in which configurable and context are not both given, which is refused: clients cannot send both, so next to a context all of
// configurable was written here.
func asSent(payload json.RawMessage) json.RawMessage {
	o := jsonobj.Of(payload)
	config := jsonobj.Of(o.Get("config"))
	if jsonobj.Of(o.Get("context")).Len() == 0 || config.Get("configurable") == nil {
		return payload
	}
	config.Delete("configurable")
	o.Set("config", config.JSON())
	return o.JSON()
}

// admission is the answer for one version of a cron.
type admission struct {
	updated time.Time
	req     *run.Request
	err     error // refuses it
}

// of returns the admission if it is for this version of the cron, else nil.
func (a *admission) of(c *run.Cron) *admission {
	if a == nil || !a.updated.Equal(c.UpdatedAt) {
		return nil
	}
	return a
}

// atOnce is how many crons are asked about at once.
const atOnce = 16

// asks reports whether a cron is asked about before it fires: tasks always, as their request is made then.
func (s *Crons) asks(c *run.Cron) bool { return c.Account != "" || s.Admit != nil }

// ask asks whether a cron may make a run.
func (s *Crons) ask(ctx context.Context, c *run.Cron) *admission {
	a := &admission{updated: c.UpdatedAt}
	if a.req, a.err = s.request(c); a.err == nil && s.Admit != nil {
		a.err = s.Admit(ctx, c, a.req)
	}
	return a
}

// admit asks about the crons that are due, with tasks about those too, before the transaction that fires them: the answer may come from another process.
func (s *Crons) admit(ctx context.Context, now time.Time, tasks bool) (map[id.Cron]*admission, error) {
	answers := map[id.Cron]*admission{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, with := range []bool{false, true} { // tasks that wait must not hide other crons
		if with && !tasks || !with && s.Admit == nil {
			continue
		}
		due, err := s.Store.DueCrons(ctx, now, 2*cronBatch, with)
		if err != nil {
			_ = group.Wait()
			return nil, err
		}
		for _, c := range due {
			if answers[c.ID] != nil || !s.asks(c) {
				continue
			}
			a := new(admission)
			answers[c.ID] = a
			group.Go(func() error {
				*a = *s.ask(ctx, c)
				return nil
			})
		}
	}
	_ = group.Wait() // the errors are those of the crons
	return answers, ctx.Err()
}

// fire makes the run of a cron that is no task. admitted is the answer for it; nil: no policy was asked.
func (s *Crons) fire(add Add, c *run.Cron, admitted *admission) error {
	var req *run.Request
	var err error
	if admitted != nil {
		req, err = admitted.req, admitted.err
	} else {
		req, err = s.request(c)
	}
	if err != nil {
		return err
	}
	t := c.Thread
	if t == "" {
		t = id.NewThread()
	}
	_, err = add(t, c.Assistant, c.Thread == "", req)
	return err
}
