package compat

import (
	"math"
	"strconv"
	"strings"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread/search"
)

const (
	defaultResults = 20
	maxResults     = 100
	maxSearchText  = 1000 // bytes
)

// SearchQuery reads the query of the route that searches messages. get returns all values of a parameter; the last one counts.
func SearchQuery(get func(name string) []string) (q search.Query, limit int, err error) {
	p := params(get)
	if limit, err = p.limit(defaultResults, maxResults); err != nil {
		return q, 0, err
	}
	text, _ := p.last("text")
	if len(text) > maxSearchText {
		return q, 0, fault.Newf(fault.Unprocessable, "Invalid text: at most %d bytes", maxSearchText)
	}
	if q.Terms, err = search.Parse(text); err != nil {
		return q, 0, err
	}
	if t, given := p.last("thread_id"); given {
		if q.Thread = id.Thread(id.Canonical(t)); q.Thread == "" {
			return q, 0, fault.New(fault.Unprocessable, "Invalid thread_id: must be a UUID")
		}
	}
	if before, given := p.last("before"); given {
		if q.Before, err = placeOf(before, q.Thread); err != nil {
			return q, 0, err
		}
	}
	return q, limit, nil
}

// placeOf reads what ResultPlace has written: the seq in a thread, or the body and the thread.
func placeOf(text string, of id.Thread) (search.Place, error) {
	number, thread, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/2 || (of == "") == (thread == "") {
		return search.Place{}, fault.New(fault.Unprocessable, "Invalid before: must be next of a page of the same search")
	}
	if of != "" {
		return search.Place{Seq: eventstore.Seq(n)}, nil
	}
	return search.Place{Body: n, Thread: id.Thread(thread)}, nil
}

// ResultPlace is the text of a place in a search; "" for none. of is the thread of the search; "": all.
func ResultPlace(next search.Place, of id.Thread) string {
	switch {
	case next == search.Place{}:
		return ""
	case of != "":
		return strconv.FormatInt(int64(next.Seq), 10)
	}
	return strconv.FormatInt(next.Body, 10) + "." + string(next.Thread)
}

// AppendResults appends a page of a search: {"results": […], "next": text or null}.
func AppendResults(dst []byte, page []search.Result, next string) []byte {
	r := newRow(dst, nil)
	r.key("results")
	r.dst = AppendList(r.dst, page, appendResult)
	r.textOrNull("next", next)
	return r.end()
}

func appendResult(dst []byte, f search.Result) []byte {
	r := newRow(dst, nil)
	r.text("thread_id", string(f.Thread))
	r.textOrNull("run_id", string(f.Run))
	r.key("seq")
	r.dst = strconv.AppendInt(r.dst, int64(f.Shown), 10)
	r.textOrNull("message_id", f.MessageID)
	r.text("event_type", f.Type)
	r.timeOrNull("created_at", orNil(f.CreatedAt))
	r.key("snippet")
	r.dst = AppendList(r.dst, f.Snippet, func(dst []byte, p search.Part) []byte {
		part := newRow(dst, nil)
		part.text("text", p.Text)
		part.bool("match", p.Match)
		return part.end()
	})
	return r.end()
}
