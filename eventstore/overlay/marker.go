package overlay

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// marker is the entry in a transcript where messages were condensed.
type marker struct {
	eventstore.Summary
	run          id.Run
	system, bare []byte
}

func readMarker(e *eventstore.Event) (*marker, error) {
	s, err := eventstore.ParseSummary(e.Content)
	if err != nil {
		return nil, err
	}
	return newMarker(s, e.Run), nil
}

// newMarker encodes a marker in the forms that are separate entries. Unknown types of messages make langchain-core and newer
// JavaScript SDKs throw, so it is a system message.
func newMarker(s eventstore.Summary, r id.Run) *marker {
	mid, words, facts := jsonobj.Quote(s.ID), jsonobj.Quote(s.Summary), factsOf(s.ReplacedCount, s.Summary, r)

	system := append([]byte(`{"type":"system","id":`), mid...)
	system = append(append(system, `,"content":`...), words...)
	system = append(system, `,"name":null,"response_metadata":{},"additional_kwargs":{"summary_marker":{`...)
	system = append(append(system, facts...), "}}}"...)

	bare := append([]byte(`{"id":`), mid...)
	bare = append(bare, `,"type":"summary_marker",`...)
	bare = append(append(bare, facts...), '}')
	return &marker{Summary: s, run: r, system: system, bare: bare}
}

// factsOf returns the members that every form of a marker has.
func factsOf(replaced int, summary string, r id.Run) []byte {
	by := []byte("null")
	if r != "" {
		by = jsonobj.Quote(string(r))
	}
	facts := strconv.AppendInt([]byte(`"replaced_count":`), int64(replaced), 10)
	facts = append(append(facts, `,"summary":`...), jsonobj.Quote(summary)...)
	return append(append(facts, `,"run_id":`...), by...)
}

// as returns the marker as a separate entry; nil when this form has none.
func (m *marker) as(form Markers) []byte {
	switch form {
	case AttachedMarkers, NoMarkers:
		return nil
	case BareMarkers:
		return m.bare
	default:
		return m.system
	}
}

// attached is what the next message of a transcript carries: the adjacent markers before it, merged into one.
type attached struct {
	replaced int
	summary  string
	run      id.Run
	some     bool
}

func (a *attached) add(m *marker) {
	a.replaced, a.summary, a.run, a.some = a.replaced+m.ReplacedCount, m.Summary.Summary, m.run, true
}

// appendTo appends a message that carries the markers.
func (a *attached) appendTo(out, message []byte) []byte {
	facts := append(append([]byte{'{'}, factsOf(a.replaced, a.summary, a.run)...), '}')
	start, end, ok := jsonscan.Member(message, "additional_kwargs")
	if ok && message[start] == '{' {
		kwargs := jsonobj.Of(message[start:end])
		kwargs.Set(MarkerKey, facts)
		return append(append(append(out, message[:start]...), kwargs.JSON()...), message[end:]...)
	}
	o, kwargs := jsonobj.Of(message), &jsonobj.Object{}
	kwargs.Set(MarkerKey, facts)
	o.Set("additional_kwargs", kwargs.JSON())
	return append(out, o.JSON()...)
}

// MarkerKey is the member of additional_kwargs that a marker is in.
const MarkerKey = "summary_marker"

// markerPrefix begins the id of every marker.
const markerPrefix = "summary-marker-"

// isMarker reports whether a client's message is a marker that was shown as a separate entry, in any form. A marker that has lost its id looks
// like a system message with the text of the summary attached to it. shown reports whether a message has an id.
func isMarker(message []byte, shown func(mid string) bool) bool {
	mid := jsonscan.Text(message, "id")
	if strings.HasPrefix(mid, markerPrefix) || jsonscan.Text(message, "type") == string(BareMarkers) {
		return true
	}
	facts := jsonscan.Raw(jsonscan.Raw(message, "additional_kwargs"), MarkerKey)
	return facts != nil && jsonscan.Text(message, "type") == "system" && jsonscan.Text(message, "content") == jsonscan.Text(facts, "summary") &&
		(mid == "" || !shown(mid))
}

// detached returns a client's message without the marker that it carries; the same bytes when it carries none.
func detached(message json.RawMessage) json.RawMessage {
	for _, path := range [...][]string{{"additional_kwargs"}, {"kwargs", "additional_kwargs"}} {
		start, end := 0, len(message)
		for _, key := range path {
			from, to, ok := jsonscan.Member(message[start:end], key)
			if !ok {
				start = end
				break
			}
			start, end = start+from, start+to
		}
		if _, _, ok := jsonscan.Member(message[start:end], MarkerKey); ok {
			kwargs := jsonobj.Of(message[start:end])
			kwargs.Delete(MarkerKey)
			message = jsonscan.Splice(message, start, end, kwargs.JSON())
		}
	}
	return message
}

var legacyMark = []byte(`"Command(update=`)

// legacyContent returns the content of a tool's message when the stored text is Python's str() of the Command around the
// message, as old writers left it: Command(update={'messages': [ToolMessage(content='X', …)]}).
func legacyContent(stored string) (said string, ok bool) {
	if !strings.HasPrefix(stored, "Command(update=") {
		return "", false
	}
	_, rest, ok := strings.Cut(stored, "ToolMessage(content=")
	if !ok || rest == "" || rest[0] != '\'' && rest[0] != '"' {
		return "", false
	}
	return pythonString(rest)
}

// unwrap returns a tool's message with its original content, if legacyContent can read it.
func unwrap(kind string, message []byte) ([]byte, bool) {
	if eventstore.Canonical(kind) != eventstore.TypeTool || !bytes.Contains(message, legacyMark) {
		return nil, false
	}
	said, ok := legacyContent(gjson.GetBytes(message, "content").String())
	if !ok {
		return nil, false
	}
	o := jsonobj.Of(message)
	o.SetText("content", said)
	return o.JSON(), true
}

// Unwrap restores the messages of a page of a transcript, as state shows them: the text of a Command, left by old writers, becomes the content
// of its tool's message.
func Unwrap(rows []*eventstore.Event) {
	for _, row := range rows {
		if text, ok := unwrap(row.Type, row.Content); ok {
			row.Content = text
		}
	}
}

// pythonString reads the string literal at the beginning of s.
func pythonString(s string) (string, bool) {
	quote, s := s[0], s[1:]
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == quote:
			return b.String(), true
		case c != '\\' || i+1 == len(s):
			b.WriteByte(c)
			i++
			continue
		}
		escape := s[i+1]
		i += 2
		digits := 0
		switch escape {
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		case '\\', '\'', '"':
			b.WriteByte(escape)
		default: // Python keeps unknown escapes
			b.WriteByte('\\')
			b.WriteByte(escape)
		}
		if digits == 0 {
			continue
		}
		if i+digits > len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i:i+digits], 16, 32)
		if err != nil {
			return "", false
		}
		r := rune(n)
		if n > utf8.MaxRune {
			r = utf8.RuneError
		}
		b.WriteRune(r)
		i += digits
	}
	return "", false
}

// lcSummarization is what LangChain's SummarizationMiddleware writes in lc_source.
const lcSummarization = "summarization"

// summarizes reports whether a message declares itself a summary of LangChain's SummarizationMiddleware.
func summarizes(message []byte) bool {
	kwargs := jsonscan.Raw(message, "additional_kwargs")
	return kwargs != nil && jsonscan.Text(kwargs, "lc_source") == lcSummarization
}
