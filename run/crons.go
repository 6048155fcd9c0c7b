package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/id"
	"understudy/internal/cronexpr"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/limits"
	"understudy/internal/loop"
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
func nextTime(c *Cron, after time.Time) (*time.Time, error) {
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

var errNoCron = fault.New(fault.NotFound, "Not Found")

// crons keeps schedules and makes the runs that are due by them.
type crons struct {
	store  Store
	clock  *clock.Clock
	now    func() time.Time
	wire   Wire
	policy *webhook.Policy
	runs   *Service // creates the runs
	log    *slog.Logger
	poked  chan struct{} // capacity 1: the next cron changed
}

// create is Service.CreateCron.
func (s *crons) create(ctx context.Context, n NewCron) (*Cron, error) {
	// The order of the checks is LangGraph Server's: it decides which of several mistakes a client sees.
	if err := s.policy.Check(gjson.ParseBytes(n.Payload["webhook"]).String()); err != nil {
		return nil, err
	}
	a, err := s.runs.resolveAssistant(n.AssistantID)
	if err != nil {
		return nil, fault.Newf(fault.NotFound, "Assistant '%s' not found", n.AssistantID)
	}
	if err := limits.Metadata(n.Metadata); err != nil {
		return nil, err
	}
	now := s.now()
	c := &Cron{
		ID: id.NewCron(), Assistant: a, Thread: n.Thread, Schedule: n.Schedule, Timezone: n.Timezone, EndTime: n.EndTime,
		Metadata: n.Metadata, OnRunCompleted: n.OnRunCompleted, Enabled: n.Enabled, CreatedAt: now, UpdatedAt: now,
	}
	if len(c.Metadata) == 0 {
		c.Metadata = emptyObject
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
	c.Payload = withCronID(payload, c.ID)
	err = s.store.Write(ctx, func(tx Tx) error {
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
	loop.Poke(s.poked)
	return c, nil
}

func withCronID(payload *jsonobj.Object, c id.Cron) json.RawMessage {
	config := jsonobj.Of(payload.Get("config"))
	configurable := jsonobj.Of(config.Get("configurable"))
	configurable.SetText("cron_id", string(c))
	config.Set("configurable", configurable.JSON())
	payload.Set("config", config.JSON())
	return payload.JSON()
}

// get is Service.GetCron.
func (s *crons) get(ctx context.Context, c id.Cron) (*Cron, error) {
	row, err := s.store.Cron(ctx, c)
	if fault.Is(err, fault.NotFound) {
		return nil, errNoCron
	}
	return row, err
}

// update is Service.UpdateCron.
func (s *crons) update(ctx context.Context, c id.Cron, p CronPatch) (*Cron, error) {
	if err := s.checkPatch(p); err != nil {
		return nil, err
	}
	var row *Cron
	err := s.store.Write(ctx, func(tx Tx) error {
		var err error
		if row, err = tx.Cron(c); err != nil {
			return err
		}
		now := s.now()
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
			row.Payload = withCronID(payload, row.ID)
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
	loop.Poke(s.poked)
	return row, nil
}

// checkPatch refuses what no cron can be changed to.
func (s *crons) checkPatch(p CronPatch) error {
	if err := s.policy.Check(gjson.ParseBytes(p.Payload["webhook"]).String()); err != nil {
		return err
	}
	if p.Timezone == nil {
		return nil
	}
	_, err := zoneOf(*p.Timezone)
	return err
}

// remove is Service.DeleteCron.
func (s *crons) remove(ctx context.Context, c id.Cron) error {
	err := s.store.Write(ctx, func(tx Tx) error {
		if _, err := tx.Cron(c); err != nil {
			return err
		}
		return tx.DeleteCron(c)
	})
	if fault.Is(err, fault.NotFound) {
		return errNoCron
	}
	return err
}

// search is Service.SearchCrons.
func (s *crons) search(ctx context.Context, q CronQuery) ([]*Cron, bool, error) {
	limit := q.Limit
	if limit > 0 {
		q.Limit++
	}
	page, err := s.store.Crons(ctx, q)
	if err != nil {
		return nil, false, err
	}
	if limit > 0 && len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

// cronBatch is how many crons fire in one transaction: enough for thousands that are due in the same minute, few enough not to hold up other writers.
const cronBatch = 64

// fireDue makes one run for each due cron and moves the cron on in the same transaction: it fires once, whatever happens. What was missed while the
// server was down is made up for by one run. It returns when the next cron is due.
func (s *crons) fireDue(ctx context.Context) (time.Time, error) {
	for {
		now, sure, err := s.clock.Sure(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if !sure {
			return now.Add(clockRetry), nil
		}
		fired, err := s.fireBatch(ctx, now)
		if err != nil {
			return time.Time{}, err
		}
		if fired == 0 {
			next, err := s.store.NextCron(ctx)
			if now := s.now(); err == nil && !next.IsZero() && !next.After(now) {
				next = now.Add(100 * time.Millisecond) // another instance is about to fire it
			}
			return next, err
		}
		s.runs.queue.queued()
	}
}

// fireBatch fires those that are due longest by a time, and returns how many.
func (s *crons) fireBatch(ctx context.Context, now time.Time) (int, error) {
	var due []*Cron
	var made []created
	err := s.runs.settler.writeReading(ctx, func(tx Tx, read *readings) error {
		made = made[:0]
		var err error
		if due, err = tx.DueCrons(now, cronBatch); err != nil {
			return err
		}
		// In the same order everywhere: a storage that locks threads one by one must not find two transactions that wait for each other.
		slices.SortStableFunc(due, func(a, b *Cron) int { return strings.Compare(string(a.Thread), string(b.Thread)) })
		for _, c := range due {
			if c.Next, err = nextTime(c, now); err != nil {
				s.log.ErrorContext(ctx, "cron has no valid schedule any more; it is switched off", "cron_id", c.ID, "error", err)
				c.Next, c.Enabled = nil, false
			}
			if err := tx.UpdateCron(c); err != nil {
				return fmt.Errorf("move cron %s on: %w", c.ID, err)
			}
			one, err := s.fire(tx, read, c)
			if err != nil {
				if kind := fault.KindOf(err); kind == fault.Internal || kind == fault.Unavailable { // it may work the next time
					return err
				}
				s.log.WarnContext(ctx, "cron could not make its run", "cron_id", c.ID, "error", err)
			}
			made = append(made, one)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i := range made {
		s.runs.displace(ctx, &made[i])
	}
	return len(due), nil
}

func (s *crons) fire(tx Tx, read *readings, c *Cron) (created, error) {
	req, err := s.wire.Request(c.Payload, c.Thread == "")
	if err != nil {
		return created{}, err
	}
	req.RequestID = string(id.NewRun())
	if c.Thread == "" {
		req.OnCompletion = c.OnRunCompleted
	}
	t := c.Thread
	if t == "" {
		t = id.NewThread()
	}
	return s.runs.insert(tx, read, t, c.Assistant, c.Thread == "", &req, false)
}
