// Package logs keeps the last lines of the log in memory, for those who run a server and look at its pages. Lines that it returns hold no credentials:
// what looks like one is replaced. That takes longer than writing the line, so it happens when a line is read for the first time.
package logs

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxLines = 2_000
	maxBytes = 4 << 20 // of all lines
	maxText  = 4 << 10 // of a message or attribute
)

// Request is the message of the line that each request leaves.
const Request = "request"

// Messages of lines that the terminal of `understudy dev` shows in a form of their own.
const (
	GraphOutput    = "graph output" // what the code of a graph prints or logs
	GraphRaised    = "graph raised"
	RunEnded       = "run ended"
	AttemptEnded   = "attempt ended; the run continues in another one"
	AttemptDropped = "attempt ended; the run is not this server's any more, or its end cannot be stored now"
)

// Line is a line of the log.
type Line struct {
	Seq     uint64            `json:"seq"` // on its server, ascending
	Time    time.Time         `json:"time"`
	Level   string            `json:"level"` // of slog: INFO, WARN, …
	Message string            `json:"message"`
	Attrs   map[string]string `json:"attributes,omitempty"`
	size    int
	safe    bool // nothing in it looks like a credential
}

// Ring keeps the last lines. It is safe for concurrent use.
type Ring struct {
	mu    sync.Mutex
	lines []Line
	bytes int
	seq   uint64
	more  chan struct{} // closed with the next line
}

// NewRing keeps none yet.
func NewRing() *Ring { return &Ring{more: make(chan struct{})} }

// Handler returns a handler that passes on to h what h wants, and keeps a copy of it.
func (r *Ring) Handler(h slog.Handler) slog.Handler { return &handler{Handler: h, ring: r} }

// After returns the newest lines with a higher seq, at most limit, oldest first, and what is closed when there are more.
func (r *Ring) After(seq uint64, limit int) (list []Line, more <-chan struct{}) {
	r.mu.Lock()
	from := len(r.lines)
	for from > 0 && r.lines[from-1].Seq > seq && len(r.lines)-from < limit {
		from--
	}
	list, more = append(list, r.lines[from:]...), r.more
	r.mu.Unlock()
	var cleaned []Line
	for i := range list {
		if l := &list[i]; !l.safe {
			l.clean()
			cleaned = append(cleaned, *l)
		}
	}
	if len(cleaned) > 0 {
		r.keep(cleaned)
	}
	return list, more
}

// keep stores lines that were cleaned in place of what they were.
func (r *Ring) keep(cleaned []Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == 0 {
		return
	}
	for _, l := range cleaned {
		if i := int64(l.Seq) - int64(r.lines[0].Seq); i >= 0 {
			r.lines[i] = l
		}
	}
}

func (r *Ring) add(l Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	l.Seq = r.seq
	r.lines = append(r.lines, l)
	r.bytes += l.size
	drop := 0
	for len(r.lines)-drop > maxLines || r.bytes > maxBytes && len(r.lines)-drop > 1 {
		r.bytes -= r.lines[drop].size
		r.lines[drop] = Line{}
		drop++
	}
	if r.lines = r.lines[drop:]; cap(r.lines) > 4*maxLines {
		r.lines = append(make([]Line, 0, 2*maxLines), r.lines...)
	}
	close(r.more)
	r.more = make(chan struct{})
}

type handler struct {
	slog.Handler
	ring  *Ring
	group string
	attrs []slog.Attr // with the groups in their keys
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler, next.attrs = h.Handler.WithAttrs(attrs), append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		next.attrs = append(next.attrs, slog.Attr{Key: h.group + a.Key, Value: a.Value})
	}
	return &next
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.Handler, next.group = h.Handler.WithGroup(name), h.group+name+"."
	return &next
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	l := Line{Time: r.Time.UTC(), Level: r.Level.String(), Message: bounded(r.Message), Attrs: map[string]string{}}
	for _, a := range h.attrs {
		l.put(a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		l.put(h.group+a.Key, a.Value)
		return true
	})
	l.size = len(l.Message) + 64
	for k, v := range l.Attrs {
		l.size += len(k) + len(v) + 32
	}
	h.ring.add(l)
	return h.Handler.Handle(ctx, r)
}

// maxAttrs bounds the attributes of a line.
const maxAttrs = 50

func (l *Line) put(key string, v slog.Value) {
	v = v.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, a := range v.Group() {
			l.put(key+"."+a.Key, a.Value)
		}
		return
	}
	if key == "" || len(l.Attrs) >= maxAttrs {
		return
	}
	l.Attrs[strings.Clone(key)] = bounded(v.String())
}

// clean replaces what looks like a credential.
func (l *Line) clean() {
	attrs := make(map[string]string, len(l.Attrs)) // the other one may be read
	for key, text := range l.Attrs {
		if secretKey.MatchString(key) && !number.MatchString(text) {
			text = hidden
		}
		attrs[key] = clean(text)
	}
	l.Message, l.Attrs, l.safe = clean(l.Message), attrs, true
}

const hidden = "[hidden]"

var (
	number    = regexp.MustCompile(`^[0-9]{1,9}$`) // of tokens
	secretKey = regexp.MustCompile(`(?i)(secret|token|passw|authorization|api[-_.]?key|cookie|credential|private[-_.]?key)`)
	// secrets are what credentials look like in texts: those of URLs, of headers, assignments, keys of this server and of providers, and JSON Web Tokens.
	secrets = []struct {
		what *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`(://[^/\s:@]*:)[^@\s/]+@`), "${1}" + hidden + "@"},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}`), "${1} " + hidden},
		{regexp.MustCompile(`(?i)((?:secret|token|passw(?:or)?d|authorization|api[-_]?key|cookie)["']?\s*[=:]\s*["']?)[^\s"',;&}]{4,}`), "${1}" + hidden},
		{regexp.MustCompile(`\b(us_|sk-|sk_|pk_|lsv2_|gh[pousr]_|xox[abprs]-|AKIA|AIza)[A-Za-z0-9_-]{12,}`), "${1}" + hidden},
		{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), hidden},
	}
)

// bounded returns a text of bounded length that holds no longer one in memory.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

// marks are words of which each credential has one, in lower case. Most lines have none.
var marks = []string{"://", "bearer", "basic", "secret", "token", "passw", "authorization", "api", "cookie", "eyj", "us_", "sk-", "sk_", "pk_", "lsv2_", "gh", "xox", "akia", "aiza"}

// clean returns a text without credentials.
func clean(s string) string {
	low := strings.ToLower(s)
	if !slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(low, mark) }) {
		return s
	}
	for _, secret := range secrets {
		s = secret.what.ReplaceAllString(s, secret.with)
	}
	return s
}

// Encode returns lines as JSON; Decode is its inverse.
func Encode(list []Line) []byte {
	text, _ := json.Marshal(list) // texts and times
	return text
}

// Decode reads lines of Encode.
func Decode(text []byte) (list []Line, err error) {
	err = json.Unmarshal(text, &list)
	return list, err
}
