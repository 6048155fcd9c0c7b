package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"understudy/graph"
	"understudy/internal/logs"
)

// console writes the log for a person: requests, output and ends of runs in forms of their own, known by their messages, all else as
// "15:04:05 WARN  message key=value".
type console struct {
	out   *consoleOut
	level slog.Leveler
	attrs []field // of With
	group string  // prefix of keys, with a dot at the end
}

// consoleOut is shared by all handlers made from one console.
type consoleOut struct {
	palette
	own   func(file string) bool   // whether a file is the user's
	short func(file string) string // name of a file as it is shown

	mu  sync.Mutex // guards all below
	w   io.Writer
	run string // whose output was written last
}

// field is one attribute.
type field struct {
	key   string
	value slog.Value
}

func newConsole(w io.Writer, level slog.Leveler) console {
	return console{level: level, out: &consoleOut{
		palette: colorsOf(w), w: w, own: func(string) bool { return false }, short: func(file string) string { return file },
	}}
}

func (c console) Enabled(_ context.Context, l slog.Level) bool { return l >= c.level.Level() }

func (c console) WithAttrs(attrs []slog.Attr) slog.Handler {
	c.attrs = append(make([]field, 0, len(c.attrs)+len(attrs)), c.attrs...)
	for _, a := range attrs {
		c.attrs = flatten(c.attrs, c.group, a)
	}
	return c
}

func (c console) WithGroup(name string) slog.Handler {
	if name != "" {
		c.group += name + "."
	}
	return c
}

func flatten(to []field, prefix string, a slog.Attr) []field {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		return append(to, field{prefix + a.Key, v})
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, sub := range v.Group() {
		to = flatten(to, prefix, sub)
	}
	return to
}

func (c console) Handle(_ context.Context, r slog.Record) error {
	l := line{time: r.Time, level: r.Level, message: r.Message, fields: append(make([]field, 0, len(c.attrs)+r.NumAttrs()), c.attrs...)}
	r.Attrs(func(a slog.Attr) bool {
		l.fields = flatten(l.fields, c.group, a)
		return true
	})
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	var text string
	switch {
	case l.message == logs.GraphOutput:
		text = c.out.output(&l)
	case l.message == logs.Request && l.text("method") != "":
		text = c.out.request(&l)
	case slices.Contains([]string{logs.RunEnded, logs.AttemptEnded, logs.AttemptDropped}, l.message) && l.text("outcome") != "":
		text = c.out.ended(&l)
	case l.message == logs.GraphRaised:
		text = c.out.raised(&l, c.Enabled(context.Background(), slog.LevelDebug))
	default:
		text = c.out.other(&l)
	}
	_, err := io.WriteString(c.out.w, text)
	return err
}

// line is one record.
type line struct {
	time    time.Time
	level   slog.Level
	message string
	fields  []field
}

// text returns the value of an attribute; "" when there is none.
func (l *line) text(key string) string {
	for i := len(l.fields) - 1; i >= 0; i-- {
		if l.fields[i].key == key {
			return l.fields[i].value.String()
		}
	}
	return ""
}

// took returns the duration of a record, as a person reads it; "" when there is none.
func (l *line) took() string {
	for _, f := range l.fields {
		if f.key == durationKey {
			return tookText(f.value)
		}
	}
	return ""
}

const durationKey = "duration_ms"

func tookText(v slog.Value) string {
	if v.Kind() != slog.KindFloat64 {
		return v.String() + "ms"
	}
	return humanTime(time.Duration(v.Float64() * float64(time.Millisecond)))
}

// humanTime writes a duration with its unit and at most three digits.
func humanTime(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func (o *consoleOut) clock(l *line) string {
	return o.paint(dim, l.time.Format("15:04:05")) + " "
}

// indent is the width of the clock.
const indent = "         "

// output writes a line that a graph printed, under a line that names its run.
func (o *consoleOut) output(l *line) string {
	source := l.text("source")
	text := strings.ReplaceAll(strings.ReplaceAll(l.text("line"), "\r", ""), "\t", "    ")
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = o.printable(lines[i])
		switch {
		case l.level >= slog.LevelError:
			lines[i] = o.paint(red, lines[i])
		case l.level >= slog.LevelWarn:
			lines[i] = o.paint(yellow, lines[i])
		}
	}
	if source != "stdout" && source != "stderr" {
		lines[0] = o.paint(dim, o.printable(source)+": ") + lines[0]
		if l.level >= slog.LevelWarn {
			lines[0] = o.levelName(l.level) + lines[0]
		}
	}
	run := l.text("run_id")
	head := ""
	if run == "" {
		run = "worker " + l.text("pid")
	} else {
		run = "run " + run
	}
	if run != o.run {
		o.run = run
		head = o.clock(l) + o.paint(blue, run) + "\n"
	}
	bar := indent + o.paint(blue, "│") + " "
	return head + bar + strings.Join(lines, "\n"+bar) + "\n"
}

var pathParameter = regexp.MustCompile(`\{[a-z_]+\}`)

// request writes "POST /threads/…/runs/stream 200 53ms", of a refused one its real path and the reason.
func (o *consoleOut) request(l *line) string {
	status, path := l.text("status"), pathParameter.ReplaceAllString(l.text("route"), "…")
	color := green
	if code, err := strconv.Atoi(status); err == nil && code >= 400 {
		if real := l.text("path"); real != "" {
			path = real
		}
		color = yellow
		if code >= 500 {
			color = red
		}
	}
	text := o.clock(l) + o.paint(bold, l.text("method")) + " " + o.printable(path) + " " + o.paint(color, status) + " " + l.took()
	if ended := l.text("ended"); ended != "" && ended != "done" {
		text += " " + o.paint(yellow, "("+ended+")")
	}
	if reason := l.text("reason"); reason != "" {
		text += "  " + o.printable(cut(reason, 200))
	}
	if fix := l.text("fix"); fix != "" {
		text += "; " + o.printable(cut(fix, 200))
	}
	if color == red {
		text += o.paint(dim, "  request_id="+o.printable(l.text("request_id")))
	}
	return text + "\n"
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// ended writes how a run, or an attempt of it, ended.
func (o *consoleOut) ended(l *line) string {
	outcome := l.text("outcome")
	sign, color, more := "✗", red, ""
	switch outcome {
	case "success":
		sign, color = "✓", green
	case "interrupted":
		sign, color, more = "‖", yellow, "; it waits for an answer"
		if l.text("stateless") == "true" {
			more = "; it has no thread, so it cannot be resumed"
		}
	case "cancelled", "handed back", "dropped":
		sign, color = "-", yellow
	}
	switch l.message {
	case logs.AttemptEnded:
		sign, color, more = "-", yellow, "; it continues in another attempt"
	case logs.AttemptDropped:
		more = "; it is not this server's any more, or its end cannot be stored now"
	}
	o.run = ""
	return o.clock(l) + o.paint(color, sign) + " " + o.paint(blue, "run "+l.text("run_id")) + " of " + o.printable(l.text("graph")) + ": " +
		o.paint(color, outcome) + " after " + l.took() + more + "\n"
}

// raised writes the exception of a graph: its text, then the frames of the user's own files.
func (o *consoleOut) raised(l *line, full bool) string {
	detail := l.text("traceback")
	t := parseTraceback(detail)
	title := t.title()
	if title == "" || !t.ofPython() {
		title = l.text("error")
	}
	head := o.clock(l) + o.paint(red, "✗") + " " + o.paint(blue, "run "+l.text("run_id"))
	if t.node != "" {
		head += ", node " + o.printable(t.node)
	}
	titles := strings.Split(title, "\n")
	for i := range titles {
		titles[i] = o.paint(red, o.printable(titles[i]))
	}
	lines, own := t.render(o.own, o.short, o.palette)
	fix := l.text("fix")
	unstarted := strings.HasPrefix(l.text("error"), graph.WorkerStartError+":") // the frames are of the server's own code
	switch at := t.innermost(); {
	case unstarted && !full:
		titles, lines = []string{o.paint(red, o.printable(l.text("error")))}, nil
	case detail != "" && (full || !own && at == nil):
		if !own {
			lines = nil // the note about frames that are left out would be wrong
		}
		for text := range strings.SplitSeq(strings.TrimRight(detail, "\n"), "\n") {
			lines = append(lines, o.printable(strings.ReplaceAll(text, "\t", "    ")))
		}
	case !own && at != nil:
		lines = append([]string{"raised by " + o.paint(cyan, o.printable(inPackage(at.file))+":"+at.line)}, lines...)
		if fix == "" {
			fix = "no frame is in your files: see what the node returns or passes on, the reducers of the state, and the names of edges"
		}
	}
	if fix != "" {
		lines = append(lines, o.paint(dim, "fix ")+o.printable(fix))
	}
	const inner = indent + "  "
	text := head + ": " + strings.Join(titles, "\n"+inner) + "\n"
	for _, at := range lines {
		text += inner + at + "\n"
	}
	return text
}

func (o *consoleOut) levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return o.paint(red, l.String()) + " "
	case l >= slog.LevelWarn:
		return o.paint(yellow, l.String()) + "  "
	case l < slog.LevelInfo:
		return o.paint(dim, l.String()) + " "
	}
	return ""
}

// other writes any record: its attributes behind the message, or below it when one says how to fix what is wrong, or has several lines.
func (o *consoleOut) other(l *line) string {
	text := o.clock(l) + o.levelName(l.level) + l.message
	below := false
	for _, f := range l.fields {
		below = below || f.key == "fix" || strings.Contains(strings.TrimRight(f.value.String(), "\n"), "\n")
	}
	for _, f := range l.fields {
		key, value := f.key, f.value.String()
		if key == durationKey {
			key, value = "took", tookText(f.value)
		}
		switch {
		case value == "":
		case (key == "request_id" || key == "attempt") && l.level < slog.LevelWarn: // of use to those who look for a failure
		case below:
			lines := strings.Split(strings.TrimRight(value, "\n"), "\n")
			for i := range lines {
				lines[i] = o.printable(lines[i])
			}
			text += "\n    " + o.paint(dim, fmt.Sprintf("%-12s ", key)) + strings.Join(lines, "\n"+strings.Repeat(" ", 17))
		default:
			text += " " + o.paint(dim, key+"=") + quoted(value)
		}
	}
	return text + "\n"
}

// quoted puts a value in quotes when what follows would look like a part of it.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '=' || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
