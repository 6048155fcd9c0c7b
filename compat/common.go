package compat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// errBoth is LangGraph Server's error for a request with both `context` and `config.configurable`.
var errBoth = fault.New(fault.Invalid, "Cannot specify both configurable and context. Prefer setting context alone. "+
	"Context was introduced in LangGraph 0.6.0 and is the long term planned replacement for configurable.")

// decode prepares a body and checks it.
func decode(body []byte, s *Schema) (object, error) {
	body, err := Prepare(body)
	if err != nil {
		return nil, err
	}
	if err := s.Check(body); err != nil {
		return nil, err
	}
	return members(body), nil
}

// uuid returns the canonical spelling of an id of the named kind: `Invalid thread ID: must be a UUID` when it is not one.
func uuid(s, kind string) (string, error) {
	if c := id.Canonical(s); c != "" && len(s) == len(c) {
		return c, nil
	}
	return "", fault.New(fault.Unprocessable, "Invalid "+kind+" ID: must be a UUID")
}

// ThreadID reads the id of a thread from a path.
func ThreadID(s string) (id.Thread, error) { c, err := uuid(s, "thread"); return id.Thread(c), err }

// PlainThreadID is ThreadID with the error of routes that use Python's UUID: those that copy a thread, or create a run and follow it.
func PlainThreadID(s string) (id.Thread, error) {
	c, err := uuid(s, "thread")
	if err != nil {
		return "", fault.New(fault.Invalid, "badly formed hexadecimal UUID string")
	}
	return id.Thread(c), nil
}

// RunThreadID is ThreadID with the error of the route that creates background runs, and of commands that create runs.
func RunThreadID(s string) (id.Thread, error) {
	c, err := uuid(s, "thread")
	if err != nil {
		return "", fault.New(fault.Unprocessable, "Invalid thread ID")
	}
	return id.Thread(c), nil
}

// RunID reads the id of a run.
func RunID(s string) (id.Run, error) { c, err := uuid(s, "run"); return id.Run(c), err }

// AssistantID reads the id of an assistant.
func AssistantID(s string) (id.Assistant, error) {
	c, err := uuid(s, "assistant")
	return id.Assistant(c), err
}

// CronID reads the id of a cron.
func CronID(s string) (id.Cron, error) { c, err := uuid(s, "cron"); return id.Cron(c), err }

// optional reads an id that may be absent, null or empty.
func optional[T ~string](o object, key, kind string) (T, error) {
	if o.text(key) == "" {
		return "", nil
	}
	c, err := uuid(o.text(key), kind)
	return T(c), err
}

// Page selects a part of the results of a search.
type Page struct{ Limit, Offset int }

// maxNumber limits numbers in queries, so that sums of them do not overflow.
const maxNumber = 1<<31 - 1

// number reads an integer of a query the way Python's int does: white space around it, a sign, leading zeros and single underscores between
// digits are allowed. Larger numbers become maxNumber.
func number(s string) (n int, ok bool) {
	s = strings.TrimSpace(s)
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	digit := false
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			n, digit = min(n*10+int(c-'0'), maxNumber), true
		case c == '_' && digit:
			digit = false
		default:
			return 0, false
		}
	}
	if negative {
		n = -n
	}
	return n, digit
}

// Limit reads ?limit= or ?offset= of a list of runs. The caller has checked that the parameter exists: an empty one is not a
// number.
func Limit(s, name string) (int, error) {
	n, ok := number(s)
	if !ok {
		return 0, fault.New(fault.Invalid, "invalid literal for int() with base 10: '"+shortened(s)+"'")
	}
	if n < 0 {
		return 0, fault.New(fault.Unprocessable, "Invalid "+name+" "+shortened(s))
	}
	return n, nil
}

// shortened truncates text from a query for an error text.
func shortened(s string) string { return strings.ToValidUTF8(s[:min(len(s), 100)], "?") }

// True reads a boolean query parameter: true, 1 and yes in any case.
func True(s string) bool {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "on":
		return true
	}
	return false
}

// Columns are the keys that a search shows; nil: all.
type Columns []string

// has reports whether to show a key.
func (c Columns) has(key string) bool { return len(c) == 0 || slices.Contains(c, key) }

// RunColumns checks the `select` of a list of runs.
func RunColumns(names []string) (Columns, error) {
	var bad []string
	for _, n := range names {
		if !slices.Contains(runColumns, n) {
			bad = append(bad, "'"+strings.ToValidUTF8(n[:min(len(n), 100)], "?")+"'")
		}
	}
	if bad != nil {
		return nil, fault.New(fault.Unprocessable, "Invalid select columns: ["+strings.Join(bad, ", ")+"]. Expected: {'"+strings.Join(runColumns, "', '")+"'}")
	}
	return names, nil
}

// reservedMetadata reports whether requests cannot set a key of metadata.
func reservedMetadata(key string) bool {
	switch key {
	case "thread_id", "assistant_id", "run_id", "cron_id":
		return true
	}
	return false
}

// reservedConfigurable reports whether the server itself sets a name in `configurable` and `context`. LangGraph Server
// accepts some __pregel_ names; they are handles of a running graph, which JSON cannot hold.
func reservedConfigurable(key string) bool {
	switch key {
	case "langgraph_request_id", "__after_seconds__", "__request_start_time_ms__", "__otel_traceparent__", "__otel_tracestate__", encryption.Key:
		return true
	}
	return strings.HasPrefix(key, "langgraph_auth_") || strings.HasPrefix(key, "__pregel_") || strings.HasPrefix(key, "__langsmith_")
}

// metadata returns the metadata of a request that creates or changes something.
func (o object) metadata() json.RawMessage {
	return distinct(without(o.raw("metadata"), reservedMetadata))
}

// placing reports whether a key of configurable only locates a run, which the server does itself. IM channels send such keys in
// addition to a context; LangGraph Server refuses that without need.
func placing(key string) bool { return key == "thread_id" || key == "checkpoint_ns" }

// configured returns config and context without the reserved names. Sending both is refused.
func (o object) configured() (config, context json.RawMessage, err error) {
	config, context = distinct(o.raw("config")), distinct(without(o.raw("context"), reservedConfigurable))
	if config == nil {
		return nil, context, nil
	}
	given := members(config).raw("configurable")
	if given == nil {
		return config, context, nil
	}
	if o.raw("context") != nil && len(given) > 2 && len(o.raw("context")) > 2 {
		if len(without(given, placing)) > 2 {
			return nil, nil, errBoth
		}
		return with(config, "configurable", json.RawMessage(`{}`)), context, nil
	}
	if clean := distinct(without(given, reservedConfigurable)); len(clean) != len(given) {
		config = with(config, "configurable", clean)
	}
	return config, context, nil
}

// timeLayouts are the forms of ISO 8601 that clients send; those without a zone are UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02"}

func parseTime(s string) (time.Time, bool) {
	for _, l := range timeLayouts {
		if t, err := time.Parse(l, s); err == nil && t.Year() >= 1 && t.Year() <= 9999 {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// AppendTime appends a time as a JSON string, with microseconds and a numeric offset. As Python, it leaves out microseconds that are zero.
func AppendTime(dst []byte, t time.Time) []byte {
	layout := `"2006-01-02T15:04:05.000000-07:00"`
	if t.Nanosecond() < 1000 {
		layout = `"2006-01-02T15:04:05-07:00"`
	}
	return t.UTC().AppendFormat(dst, layout)
}

func appendTexts(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonobj.AppendText(dst, s)
	}
	return append(dst, ']')
}

// appendRaw appends JSON as it is; absent is null.
func appendRaw(dst []byte, v json.RawMessage) []byte {
	if len(v) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, v...)
}

// appendRawOr is appendRaw with another text for absent.
func appendRawOr(dst []byte, v json.RawMessage, absent string) []byte {
	if len(v) == 0 {
		return append(dst, absent...)
	}
	return append(dst, v...)
}

// textOrNull appends s, or null when it is empty.
func textOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return jsonobj.AppendText(dst, s)
}

// row writes the members of an object, without those that were not selected.
type row struct {
	dst   []byte
	cols  Columns
	begun bool
}

func newRow(dst []byte, cols Columns) row { return row{dst: append(dst, '{'), cols: cols} }

// key begins a member; false when it is not selected.
func (r *row) key(name string) bool {
	if !r.cols.has(name) {
		return false
	}
	if r.begun {
		r.dst = append(r.dst, ',')
	}
	r.begun = true
	r.dst = append(append(append(r.dst, '"'), name...), '"', ':')
	return true
}

func (r *row) text(name, v string) {
	if r.key(name) {
		r.dst = jsonobj.AppendText(r.dst, v)
	}
}

func (r *row) textOrNull(name, v string) {
	if r.key(name) {
		r.dst = textOrNull(r.dst, v)
	}
}

func (r *row) raw(name string, v json.RawMessage) {
	if r.key(name) {
		r.dst = appendRaw(r.dst, v)
	}
}

func (r *row) object(name string, v json.RawMessage) {
	if r.key(name) {
		r.dst = appendRawOr(r.dst, v, "{}")
	}
}

func (r *row) time(name string, t time.Time) {
	if r.key(name) {
		r.dst = AppendTime(r.dst, t)
	}
}

func (r *row) timeOrNull(name string, t *time.Time) {
	if r.key(name) {
		if t == nil {
			r.dst = append(r.dst, "null"...)
		} else {
			r.dst = AppendTime(r.dst, *t)
		}
	}
}

// orNil returns nil for a time that is not known.
func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (r *row) bool(name string, v bool) {
	if r.key(name) {
		r.dst = strconv.AppendBool(r.dst, v)
	}
}

func (r *row) int(name string, v int) {
	if r.key(name) {
		r.dst = strconv.AppendInt(r.dst, int64(v), 10)
	}
}

func (r *row) end() []byte { return append(r.dst, '}') }

// AppendList appends a JSON list of what each element appends.
func AppendList[T any](dst []byte, list []T, each func([]byte, T) []byte) []byte {
	dst = append(dst, '[')
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = each(dst, e)
	}
	return append(dst, ']')
}

// AppendDetail appends the body of an error.
func AppendDetail(dst []byte, text string) []byte {
	return append(jsonobj.AppendText(append(dst, `{"detail":`...), text), '}')
}

// AppendError appends the answer of a wait or join for a failed run: errorJSON is {error, message}.
func AppendError(dst []byte, errorJSON json.RawMessage) []byte {
	return append(appendRaw(append(dst, `{"__error__":`...), errorJSON), '}')
}

// HTTPError returns the error of a stream or join that failed in the server, as {error, message}.
func HTTPError(status int, text string) json.RawMessage {
	b := jsonobj.AppendText([]byte(`{"error":"HTTPException","message":`), strconv.Itoa(status)+": "+text)
	return append(b, '}')
}
