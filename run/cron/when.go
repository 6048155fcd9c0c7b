package cron

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/internal/cronexpr"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// When is the schedule of a scheduled task.
type When struct {
	Once     bool
	Spec     json.RawMessage // with cron or run_at
	Timezone string
}

// whenOf returns the schedule of a task.
func whenOf(c *run.Cron) When {
	return When{Once: c.Task.Once, Spec: c.Task.Spec, Timezone: c.Timezone}
}

// next returns when a schedule is due after a time, nil: never again, and the schedule in the form in which it is stored. The texts of refusals are those of DeerFlow.
func (w *When) next(after time.Time) (*time.Time, error) {
	zone, err := time.LoadLocation(w.Timezone)
	if err != nil || w.Timezone == "" || w.Timezone == "Local" { // which Go takes for UTC, and for the zone of this machine
		return nil, fault.New(fault.Unprocessable, "Unknown timezone: "+w.Timezone)
	}
	if w.Once {
		at := gjson.GetBytes(w.Spec, "run_at")
		if at.Type != gjson.String {
			return nil, fault.New(fault.Unprocessable, "once schedule requires run_at")
		}
		t, err := isoTime(at.Str, zone)
		if err != nil {
			return nil, err
		}
		if t = t.UTC(); !t.After(after) {
			return nil, nil
		}
		return &t, nil
	}
	text := gjson.GetBytes(w.Spec, "cron")
	if text.Type != gjson.String {
		return nil, fault.New(fault.Unprocessable, "cron schedule requires schedule_spec.cron")
	}
	parts := strings.Fields(text.Str)
	if len(parts) != 5 {
		return nil, fault.New(fault.Unprocessable, "Cron expression must contain exactly 5 fields")
	}
	expression := strings.Join(parts, " ")
	schedule, err := cronexpr.Parse(expression)
	if err != nil {
		return nil, fault.Newf(fault.Unprocessable, "[%s] is not acceptable: %w", expression, err)
	}
	spec := jsonobj.Of(w.Spec)
	spec.SetText("cron", expression)
	w.Spec = spec.JSON()
	t := schedule.Next(after.In(zone))
	if t.IsZero() {
		return nil, fault.New(fault.Unprocessable, errNever.Error())
	}
	t = t.UTC()
	return &t, nil
}

// iso is what Python reads as a date with or without a time: year, month and day, or these without hyphens, then the time and the offset.
var iso = regexp.MustCompile(`^(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d))(?:.(\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?(Z|([+-])(\d\d)(?::?(\d\d)(?::?(\d\d))?)?)?)?$`)

// isoTime reads a time; without an offset it is one of the zone.
func isoTime(text string, zone *time.Location) (time.Time, error) {
	bad := fault.Newf(fault.Unprocessable, "Invalid isoformat string: '%s'", text)
	m := iso.FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, bad
	}
	n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v } // digits, or nothing
	year, month, day, hour, minute, second := n(1), n(2)+n(4), n(3)+n(5), n(6), n(7), n(8)
	nanos, _ := strconv.Atoi((m[9] + "000000")[:6])
	if hour > 23 || minute > 59 || second > 59 || year == 0 || n(12) > 23 || n(13) > 59 || n(14) > 59 {
		return time.Time{}, bad
	}
	if m[10] == "Z" {
		zone = time.UTC
	} else if m[10] != "" {
		offset := n(12)*3600 + n(13)*60 + n(14)
		if m[11] == "-" {
			offset = -offset
		}
		zone = time.FixedZone("", offset)
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanos*1000, zone)
	if d := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC); d.Day() != day || int(d.Month()) != month {
		return time.Time{}, fault.New(fault.Unprocessable, "day is out of range for month")
	}
	return t, nil
}

// arm returns when a task is due next, and normalizes its schedule. A single time must be in the future, by a delay at least.
func (w *When) arm(now time.Time, delay time.Duration) (*time.Time, error) {
	next, err := w.next(now)
	switch {
	case err != nil || !w.Once:
		return next, err
	case next == nil:
		return nil, fault.New(fault.Unprocessable, "once schedule must be in the future")
	case next.Sub(now) < delay:
		return nil, fault.Newf(fault.Unprocessable, "once schedule must be at least %d seconds in the future", int(delay/time.Second))
	}
	return next, nil
}
