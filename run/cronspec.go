package run

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

var cronParser = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseSchedule reads a schedule as LangGraph Server does: five fields, a sixth of seconds, or a word such as @daily. Ranges may wrap (22-2), and
// Sunday is 0 and 7. Intervals such as "@every 5m" are no schedule: they have no times of their own.
func parseSchedule(spec string) (cron.Schedule, error) {
	fields := strings.Fields(spec)
	if len(fields) == 1 && strings.HasPrefix(fields[0], "@") && !strings.HasPrefix(fields[0], "@every") {
		return cronParser.Parse(fields[0])
	}
	if len(fields) == 7 && fields[6] == "*" { // years
		fields = fields[:6]
	}
	switch len(fields) {
	case 5:
		fields = append(fields, "0")
	case 6:
	default:
		return nil, fmt.Errorf("it has %d fields", len(fields))
	}
	for i, bounds := range cronBounds {
		var err error
		if fields[i], err = unwrapRanges(fields[i], bounds); err != nil {
			return nil, err
		}
	}
	return cronParser.Parse(strings.Join(append(fields[5:], fields[:5]...), " "))
}

// cronBound is a field of a schedule, by its place.
type cronBound struct {
	min, max int
	names    string // three letters each, of min and what follows
}

var cronBounds = []cronBound{{0, 59, ""}, {0, 23, ""}, {1, 31, ""}, {1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"}, {0, 6, "sunmontuewedthufrisat"}, {0, 59, ""}}

var errRange = errors.New("it has a range that cannot be read")

// unwrapRanges writes ranges that wrap, and Sundays that are 7, as lists of values.
func unwrapRanges(field string, b cronBound) (string, error) {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		span, step, stepped := strings.Cut(part, "/")
		from, to, isRange := strings.Cut(span, "-")
		first, ok := b.value(from)
		if !ok {
			continue // a star, or what the parser refuses
		}
		if !isRange {
			if first > b.max && !stepped { // 7
				parts[i] = strconv.Itoa(b.min)
			}
			continue
		}
		last, ok := b.value(to)
		every := 1
		if stepped {
			n, err := strconv.Atoi(step)
			if err != nil || n < 1 {
				return "", errRange
			}
			every = n
		}
		if !ok {
			return "", errRange
		}
		if first <= last && last <= b.max {
			continue
		}
		if last < first {
			last += b.max - b.min + 1
		}
		var values []string
		for v := first; v <= last; v += every {
			values = append(values, strconv.Itoa(b.min+(v-b.min)%(b.max-b.min+1)))
		}
		parts[i] = strings.Join(values, ",")
	}
	return strings.Join(parts, ","), nil
}

// value reads a number or name of a field. A day of the week may be 7.
func (b cronBound) value(s string) (int, bool) {
	if at := strings.Index(b.names, strings.ToLower(s)); len(s) == 3 && at >= 0 && at%3 == 0 {
		return b.min + at/3, true
	}
	n, err := strconv.Atoi(s)
	limit := b.max
	if limit == 6 {
		limit = 7
	}
	return n, err == nil && n >= b.min && n <= limit
}
