package compat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"understudy/eventstore"
	"understudy/internal/fault"
)

const (
	defaultRows = 50
	maxRows     = 1000
)

// RowQuery reads the query of the routes that answer with event rows. get returns all values of a parameter; the last one counts.
// types reports whether to read event_types.
func RowQuery(get func(name string) []string, types bool) (q eventstore.PageQuery, err error) {
	number := func(name string, absent, least, most int64) int64 {
		s, given := params(get).last(name)
		if !given {
			return absent
		}
		n, perr := strconv.ParseUint(s, 10, 63)
		if v := int64(n); perr == nil && v >= least && v <= most {
			return v
		}
		if err == nil {
			err = fault.New(fault.Unprocessable, "Invalid "+name+" "+strings.ToValidUTF8(s[:min(len(s), 100)], "?"))
		}
		return absent
	}
	const last = 1<<63 - 1
	q.Limit = int(number("limit", defaultRows, 1, maxRows))
	q.After = eventstore.Seq(number("after_seq", -1, 0, last))
	q.Before = eventstore.Seq(number("before_seq", -1, 0, last))
	switch {
	case q.Before < 0:
		q.Before = 0
	default:
		q.Backward = q.After < 0
		q.Before = max(q.Before, 1) // there is nothing below the first row
	}
	q.After = max(q.After, 0)
	if types {
		for _, list := range get("event_types") {
			for name := range strings.SplitSeq(list, ",") {
				if name = strings.TrimSpace(name); name != "" && !slices.Contains(q.Types, name) {
					q.Types = append(q.Types, name)
				}
			}
		}
		if len(q.Types) > maxTypes && err == nil {
			err = fault.Newf(fault.Unprocessable, "Invalid event_types: more than %d", maxTypes)
		}
	}
	return q, err
}

// maxTypes limits the types in a query of the database; fewer exist.
const maxTypes = 50

// AroundRows returns the text before and after the rows of a page. An incomplete page has `metadata`: {"incomplete":true}.
func AroundRows(p *eventstore.Page) (before, after string) {
	after = `,"has_more":` + strconv.FormatBool(p.More)
	if p.Incomplete {
		after += `,"metadata":{"incomplete":true}`
	}
	return `{"data":`, after + "}"
}

// AppendEvent appends an event as a row, with its stored content spliced in.
func AppendEvent(dst []byte, e *eventstore.Event) []byte {
	content, metadata, category := json.RawMessage(e.Content), e.Metadata, e.Category
	switch e.Type {
	case eventstore.TypeSummarize:
		// The id of the marker and the event's origin are only for the overlay.
		content = without(content, func(key string) bool { return key == "id" })
		metadata = without(metadata, func(key string) bool { return key == "checkpoint_id" || key == "step" })
	case eventstore.TypeRemoved:
		category = eventstore.CategoryTrace // early rows have a category of their own
	}
	r := newRow(dst, nil)
	r.key("seq")
	r.dst = strconv.AppendInt(r.dst, int64(e.Seq), 10)
	r.textOrNull("run_id", string(e.Run))
	r.text("event_type", e.Type)
	r.text("category", category)
	r.raw("content", content)
	r.object("metadata", metadata)
	r.time("created_at", e.CreatedAt)
	return r.end()
}
