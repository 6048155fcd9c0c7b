// Package cronexpr reads cron expressions and finds the times at which they fire.
//
// LangGraph Server reads schedules with Python's croniter, so this package accepts what croniter accepts and finds the same times. Libraries for Go
// differ from it in what a schedule with both a day of the month and a weekday means ("*/2" counts as a star there), in ranges that wrap (22-2), in L,
// W and #, and in what happens when clocks change.
package cronexpr

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule is a cron expression. Bit i of a set is the value i.
type Schedule struct {
	seconds, minutes, hours, days, months, weekdays uint64

	years map[int]bool // nil: any

	anyHour, anyDay, anyWeekday bool

	lastDay bool     // L: the last day of the month
	nearest int      // 15W: the weekday nearest to a day of the month; 0: none
	nth     [7]uint8 // 1#2, by weekday: bit n for its nth in the month, bit 0 for the last (L1)
	byNth   bool
}

// field is a place in an expression.
type field struct {
	name     string
	min, max int
	names    string // three letters each, of min and what follows
}

var fields = []field{
	{"minute", 0, 59, ""},
	{"hour", 0, 23, ""},
	{"day of month", 1, 31, ""},
	{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
	{"day of week", 0, 6, "sunmontuewedthufrisat"},
	{"second", 0, 59, ""},
	{"year", 1970, 2099, ""},
}

const (
	minute = iota
	hour
	day
	month
	weekday
	second
	year
)

var words = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// Parse reads five fields (minute, hour, day of month, month, day of week), a sixth of seconds and a seventh of years, or one of the words @hourly,
// @daily, @midnight, @weekly, @monthly, @yearly and @annually.
func Parse(expression string) (*Schedule, error) {
	text := strings.ToLower(expression)
	if long, ok := words[text]; ok {
		text = long
	}
	parts := strings.Fields(text)
	if len(parts) < 5 || len(parts) > 7 {
		return nil, fmt.Errorf("it has %d fields instead of 5, 6 or 7", len(parts))
	}
	s := &Schedule{seconds: 1}
	for i, part := range parts {
		if part == "?" && (i == day || i == weekday) {
			part = "*"
		}
		if err := s.read(i, part); err != nil {
			return nil, fmt.Errorf("%s: %w", fields[i].name, err)
		}
	}
	if s.byNth && s.weekdays != 0 && !slices.Contains(strings.Split(parts[weekday], ","), "*") {
		return nil, fmt.Errorf("%s: days such as 1#2 cannot be mixed with others", fields[weekday].name)
	}
	s.anyHour = s.hours == span(0, 23)
	s.anyDay = open(parts[day], parts[weekday], s.days == span(1, 31))
	s.anyWeekday = open(parts[weekday], parts[day], s.weekdays == span(0, 6))
	return s, nil
}

// open reports whether a field of days leaves the day to the other field of days: it has a star, or it names all days and the other has a star.
func open(part, other string, all bool) bool {
	return part == "?" || slices.Contains(strings.Split(part, ","), "*") || all && strings.Contains(other, "*")
}

func span(from, to int) (set uint64) {
	for v := from; v <= to; v++ {
		set |= 1 << v
	}
	return set
}

func (s *Schedule) set(i int) *uint64 {
	return []*uint64{&s.minutes, &s.hours, &s.days, &s.months, &s.weekdays, &s.seconds}[i]
}

func (s *Schedule) add(i, v int) {
	if i == year {
		s.years[v] = true
		return
	}
	*s.set(i) |= 1 << v
}

func (s *Schedule) read(i int, part string) error {
	f := fields[i]
	switch {
	case i == year && part == "*":
		return nil
	case i == year:
		s.years = map[int]bool{}
	default:
		*s.set(i) = 0
	}
	for item := range strings.SplitSeq(part, ",") {
		if err := s.item(i, f, item); err != nil {
			return err
		}
	}
	if i == day && s.nearest != 0 && part != strconv.Itoa(s.nearest)+"w" && part != "w"+strconv.Itoa(s.nearest) {
		return fmt.Errorf("%q: W stands alone with one day", part)
	}
	return nil
}

// item reads one of the items between commas.
func (s *Schedule) item(i int, f field, item string) error {
	if i == day {
		if item == "l" {
			s.lastDay = true
			return nil
		}
		if number, ok := strings.CutSuffix(strings.TrimPrefix(item, "w"), "w"); ok != strings.HasPrefix(item, "w") {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > 31 {
				return fmt.Errorf("%q is no day", item)
			}
			s.nearest = n
			return nil
		}
	}
	if i == weekday {
		if done, err := s.nthItem(f, item); done || err != nil {
			return err
		}
	}
	values, err := f.values(item)
	for _, v := range values {
		s.add(i, v)
	}
	return err
}

// nthItem reads 1#2, mon#2, mon-fri#1 and L5; done is false for anything else.
func (s *Schedule) nthItem(f field, item string) (done bool, err error) {
	days, count, counted := strings.Cut(item, "#")
	n := 0
	if counted {
		if n, err = strconv.Atoi(count); err != nil || n < 1 || n > 5 {
			return true, fmt.Errorf("%q: a month has no weekday number %s", item, count)
		}
	} else if last, ok := strings.CutPrefix(item, "l"); ok {
		days = last
	} else {
		return false, nil
	}
	values, err := f.values(days)
	if err != nil {
		return true, err
	}
	s.byNth = true
	for _, v := range values {
		s.nth[v] |= 1 << n
	}
	return true, nil
}

// values reads *, 5, 5-7, mon-fri, and each of them with a step. A range whose ends are the same is the whole cycle, one that ends before it begins
// wraps.
func (f field) values(item string) (values []int, err error) {
	bad := fmt.Errorf("%q is no value from %d to %d", item, f.min, f.max)
	bounds, stepText, stepped := strings.Cut(item, "/")
	step := 1
	if stepped {
		if step, err = number(stepText); err != nil || step < 1 {
			return nil, fmt.Errorf("%q has no step above 0", item)
		}
	}
	from, to, isRange := strings.Cut(bounds, "-")
	low, high := f.min, f.max
	switch {
	case from == "*" && !isRange:
	case isRange:
		if f.max == 31 && to == "l" {
			to = "31"
		}
		var ok, ok2 bool
		low, ok = f.value(from)
		high, ok2 = f.value(to)
		if !ok || !ok2 {
			return nil, bad
		}
		if low == high {
			low, high = f.min, f.max
		}
	default:
		var ok bool
		if low, ok = f.value(from); !ok {
			return nil, bad
		}
		if !stepped {
			high = low
		}
	}
	end := high
	if low > high {
		end = f.max
	}
	for v := low; v <= end; v += step {
		values = append(values, v)
	}
	if low > high {
		// Counted as croniter does: a step that reaches over the end begins one later than it would by going around.
		next := f.min
		last := values[len(values)-1]
		if left := f.max - last; last+step > f.max+1 && left < step {
			next += step - left
		}
		for v := next; v <= high; v += step {
			values = append(values, v)
		}
	}
	return values, nil
}

// value reads a number or a name. A day of the week may be 7.
func (f field) value(text string) (int, bool) {
	if at := strings.Index(f.names, text); len(text) == 3 && at >= 0 && at%3 == 0 {
		return f.min + at/3, true
	}
	n, err := number(text)
	if f.max == 6 && n == 7 {
		n = 0
	}
	return n, err == nil && n >= f.min && n <= f.max
}

// number reads digits alone: no sign.
func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err
}

// horizon is how far ahead a time is looked for, in years.
const horizon = 50

// Next is the first time after another at which the schedule fires in that time's zone; the zero time when it does not within fifty years.
//
// A time that does not exist, because clocks are set forward over it, fires at the first that does, unless the hour is "*". A time that clocks set back
// repeat fires both times.
func (s *Schedule) Next(after time.Time) time.Time {
	zone := after.Location()
	start := after.Truncate(time.Second).Add(time.Second)
	limit := after.AddDate(horizon, 0, 0)
	for at := start; at.Before(limit); {
		_, offset := at.Zone()
		wall := func(t time.Time) time.Time { return t.UTC().Add(time.Duration(offset) * time.Second) }
		found := s.nextWall(wall(at), limit.Year())
		if found.IsZero() {
			return found
		}
		_, end := at.ZoneBounds()
		instant := found.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || instant.Before(end) {
			return instant.In(zone)
		}
		_, next := end.Zone()
		if found.Before(wall(end).Add(time.Duration(next-offset)*time.Second)) && !s.anyHour {
			return end.Add(time.Duration(found.Second()) * time.Second)
		}
		// Nothing fires before the day of what was found, in whichever offset.
		at = end
		if near := found.Add(-48 * time.Hour); near.After(at) {
			at = near.In(zone)
		}
	}
	return time.Time{}
}

// nextWall is the first time from another on that the schedule names, by a clock that is never set. Both are written as UTC.
func (s *Schedule) nextWall(from time.Time, lastYear int) time.Time {
	y, m, d := from.Date()
	clock := from.Hour()*3600 + from.Minute()*60 + from.Second()
	for date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC); date.Year() <= lastYear; {
		switch {
		case s.years != nil && !s.years[date.Year()]:
			date = time.Date(date.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
		case s.months&(1<<date.Month()) == 0:
			date = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		default:
			if s.onDay(date) {
				if second, ok := s.clock(clock); ok {
					return date.Add(time.Duration(second) * time.Second)
				}
			}
			date = date.AddDate(0, 0, 1)
		}
		clock = 0
	}
	return time.Time{}
}

// onDay reports whether the schedule names a day. Where it names days of the month and of the week, either is enough.
func (s *Schedule) onDay(date time.Time) bool {
	d := date.Day()
	last := time.Date(date.Year(), date.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	w := date.Weekday()
	if s.nearest != 0 && d != nearestWeekday(date, min(s.nearest, last), last) {
		return false
	}
	if s.byNth {
		nth := s.nth[w]
		return nth&(1<<((d-1)/7+1)) != 0 || nth&1 != 0 && d+7 > last
	}
	if s.nearest != 0 {
		return true
	}
	inMonth := s.days&(1<<d) != 0 || s.lastDay && d == last
	inWeek := s.weekdays&(1<<w) != 0
	switch {
	case s.anyDay:
		return s.anyWeekday || inWeek
	case s.anyWeekday:
		return inMonth
	}
	return inMonth || inWeek
}

// nearestWeekday is the day from Monday to Friday nearest to a day, in the same month.
func nearestWeekday(date time.Time, d, last int) int {
	switch time.Date(date.Year(), date.Month(), d, 0, 0, 0, 0, time.UTC).Weekday() {
	case time.Saturday:
		if d == 1 {
			return 3
		}
		return d - 1
	case time.Sunday:
		if d == last {
			return d - 2
		}
		return d + 1
	}
	return d
}

// clock is the first second of a day from another on that the schedule names.
func (s *Schedule) clock(from int) (int, bool) {
	h, m, sec := from/3600, from/60%60, from%60
	if first := next(s.hours, h); first != h {
		h, m, sec = first, 0, 0
	}
	for h < 64 {
		if first := next(s.minutes, m); first != m {
			m, sec = first, 0
		}
		if m < 64 {
			if sec = next(s.seconds, sec); sec < 64 {
				return h*3600 + m*60 + sec, true
			}
			m, sec = m+1, 0
			continue
		}
		h, m, sec = next(s.hours, h+1), 0, 0
	}
	return 0, false
}

// next is the first value of a set from another on; 64 when there is none.
func next(set uint64, from int) int {
	if from > 63 {
		return 64
	}
	return bits.TrailingZeros64(set &^ (1<<from - 1))
}
