package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"understudy/deerflow/sandbox"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Sandbox is where tools work. Errors are those of package sandbox.
type Sandbox interface {
	ID() string
	Read(ctx context.Context, path string, r sandbox.Range, limit int) (sandbox.Text, error)
	Bytes(path string, limit int64) ([]byte, error)
	Exists(path string) bool
	// Version returns a text that changes with the content of a file. With write it is an error that it cannot be written.
	Version(path string, write bool) (string, error)
	Write(path, content string, add bool) error
	Replace(path, old, next string, all bool) error
	List(ctx context.Context, path string, limit int) (list []string, cut bool, err error)
	Glob(ctx context.Context, path, pattern string, dirs bool, limit int) (list []string, cut bool, err error)
	Grep(ctx context.Context, path string, s sandbox.Search) (list []sandbox.Line, cut bool, err error)
	Run(ctx context.Context, c sandbox.Command) (string, error)
	// Virtual returns the path by which the agent knows a path of the machine.
	Virtual(host string) (string, bool)
	Close()
}

var _ Sandbox = (*sandbox.Thread)(nil)

// Options are for the tools that work in a sandbox. Zero limits are DeerFlow's.
type Options struct {
	// Open opens the sandbox of the run. A tool closes it when it has worked.
	Open func(ctx context.Context) (Sandbox, error)

	ReadLimit int // characters of read_file; 0: 50,000
	ListLimit int // characters of ls; 0: 20,000
	BashLimit int // characters of bash; 0: 20,000
	Timeout   time.Duration
	Env       []string // of commands, NAME=value
	Mounted   bool     // programs find files at the paths that the tools have, so these may stand in scripts
	// Most results of glob and grep that a model may request; 0: 1000 and 500.
	MaxGlob, MaxGrep int
}

const (
	readLimit   = 50_000
	listLimit   = 20_000
	maxWrite    = 80 << 10 // bytes of one write that replaces a file
	maxImage    = 20 << 20 // bytes
	globResults = 200
	globAtMost  = 1000
	grepResults = 100
	grepAtMost  = 500
	listAtMost  = 5000 // entries of ls
)

// run makes the function of a tool: arguments are decoded, and the sandbox is there.
func run[A any](o Options, f func(ctx context.Context, s Sandbox, a A) (any, error)) func(context.Context, message.ToolCall) (any, error) {
	return func(ctx context.Context, call message.ToolCall) (any, error) {
		var a A
		if err := json.Unmarshal(call.Args, &a); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
		s, err := o.Open(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return f(ctx, s, a)
	}
}

// Files returns the tools for files: ls, glob, grep, read_file, write_file, str_replace.
func Files(o Options) []agent.Tool {
	return []agent.Tool{ls(o), glob(o), grep(o), readFile(o), writeFile(o), strReplace(o)}
}

// explain returns the result for an error of the sandbox. what is the thing that a path should be: File or Directory.
func explain(ctx context.Context, err error, what, path, doing string) (any, error) {
	var large *sandbox.TooLarge
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, fs.ErrNotExist):
		return "Error: " + what + " not found: " + path, nil
	case errors.Is(err, fs.ErrPermission):
		return "Error: Permission denied" + doing + ": " + path, nil
	case errors.Is(err, sandbox.ErrFolder):
		return "Error: Path is a directory, not a file: " + path, nil
	case errors.Is(err, sandbox.ErrNoFolder):
		return "Error: Path is not a directory: " + path, nil
	case errors.Is(err, sandbox.ErrSpecial):
		return "Error: Path is not a regular file: " + path, nil
	case errors.Is(err, sandbox.ErrPattern):
		return "Error: Invalid glob pattern", nil
	case errors.As(err, &large):
		return "Error: File is too large: " + large.Error(), nil
	}
	pregel.LogOf(ctx).Warn("file operation of an agent failed", "path", path, "error", err)
	return nil, errors.New("the file operation failed; the server's log has the reason")
}

func ls(o Options) agent.Tool {
	type args struct {
		Path string `json:"path"`
	}
	limit := orInt(o.ListLimit, listLimit)
	return agent.Tool{
		Name: "ls", Description: "Lists a directory, two levels deep. Names of directories end with a slash.",
		Schema: schema(description, arg{"path", text, "Absolute path of the directory.", false}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			list, cut, err := s.List(ctx, a.Path, listAtMost)
			if err != nil {
				return explain(ctx, err, "Directory", a.Path, "")
			}
			if len(list) == 0 {
				return "(empty)", nil
			}
			out := sandbox.Clean(strings.Join(list, "\n"))
			if head := sandbox.Head(out, limit); cut || len(head) < len(out) {
				head = sandbox.Head(head, max(0, limit-200))
				return head + fmt.Sprintf("\n... [truncated: showing the first %d chars. Use a more specific path to see fewer results] ...", utf8.RuneCountInString(head)), nil
			}
			return out, nil
		}),
	}
}

func orInt(n, def int) int {
	if n > 0 {
		return n
	}
	return def
}

// results returns how many results are shown: as many as requested, within bounds.
func results(requested, def, most int) int { return min(orInt(requested, def), most) }

func glob(o Options) agent.Tool {
	type args struct {
		Pattern string `json:"pattern"`
		Path    string `json:"path"`
		Dirs    bool   `json:"include_dirs"`
		Max     int    `json:"max_results"`
	}
	return agent.Tool{
		Name: "glob", Description: "Finds files below a directory whose paths match a pattern. Dependencies, caches and version control are left out.",
		Schema: schema(description, arg{"pattern", text, "Pattern relative to the directory, such as **/*.py.", false}, arg{"path", text, "Absolute path of the directory.", false},
			arg{"include_dirs", boolean, "Whether directories are returned too; false when left out.", true}, arg{"max_results", integer, "At most this many paths; 200 when left out, at most 1000.", true}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			list, cut, err := s.Glob(ctx, a.Path, a.Pattern, a.Dirs, results(a.Max, globResults, orInt(o.MaxGlob, globAtMost)))
			if err != nil {
				return explain(ctx, err, "Directory", a.Path, "")
			}
			if len(list) == 0 {
				return "No files matched under " + a.Path, nil
			}
			var b strings.Builder
			b.WriteString(found(len(list), "paths", a.Path, cut))
			for i, p := range list {
				fmt.Fprintf(&b, "\n%d. %s", i+1, p)
			}
			if cut {
				b.WriteString("\nResults truncated. Narrow the path or pattern to see fewer matches.")
			}
			return sandbox.Clean(b.String()), nil
		}),
	}
}

func found(n int, what, path string, cut bool) string {
	line := fmt.Sprintf("Found %d %s under %s", n, what, path)
	if cut {
		line += fmt.Sprintf(" (showing first %d)", n)
	}
	return line
}

func grep(o Options) agent.Tool {
	type args struct {
		Pattern       string  `json:"pattern"`
		Path          string  `json:"path"`
		Glob          *string `json:"glob"`
		Literal       bool    `json:"literal"`
		CaseSensitive bool    `json:"case_sensitive"`
		Max           int     `json:"max_results"`
	}
	return agent.Tool{
		Name: "grep", Description: "Searches a text file, or the text files below a directory, for lines that match.",
		Schema: schema(description, arg{"pattern", text, "Regular expression, or plain text with literal.", false}, arg{"path", text, "Absolute path of a file or directory.", false},
			arg{"glob", textOrNull, "Only files whose paths match this pattern, such as **/*.py.", true}, arg{"literal", boolean, "Whether the pattern is plain text; false when left out.", true},
			arg{"case_sensitive", boolean, "Whether case matters; false when left out.", true}, arg{"max_results", integer, "At most this many lines; 100 when left out, at most 500.", true}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			search := sandbox.Search{Pattern: a.Pattern, Literal: a.Literal, CaseSensitive: a.CaseSensitive, Limit: results(a.Max, grepResults, orInt(o.MaxGrep, grepAtMost))}
			if a.Glob != nil {
				search.Glob = *a.Glob
			}
			if err := search.Check(); err != nil {
				return "Error: Invalid regex pattern: " + err.Error(), nil
			}
			list, cut, err := s.Grep(ctx, a.Path, search)
			if err != nil {
				return explain(ctx, err, "Directory", a.Path, "")
			}
			if len(list) == 0 {
				return "No matches found under " + a.Path, nil
			}
			var b strings.Builder
			b.WriteString(found(len(list), "matches", a.Path, cut))
			for _, l := range list {
				fmt.Fprintf(&b, "\n%s:%d: %s", l.Path, l.Number, l.Text)
			}
			if cut {
				b.WriteString("\nResults truncated. Narrow the path or add a glob filter.")
			}
			return sandbox.Clean(b.String()), nil
		}),
	}
}

// Seen is how much of a file the result of read_file shows.
type Seen int

// What a result shows: nothing, such as for a binary file or a range after the end; some lines, or the beginning of a long text; all of it.
const (
	SeenNothing Seen = iota
	SeenPart
	SeenWhole
)

type seenKey struct{}

// WithSeen returns a context for a call of read_file that sets seen before it returns. The result itself does not say it.
func WithSeen(ctx context.Context, seen *Seen) context.Context {
	return context.WithValue(ctx, seenKey{}, seen)
}

func setSeen(ctx context.Context, is Seen) {
	if seen, ok := ctx.Value(seenKey{}).(*Seen); ok {
		*seen = is
	}
}

// seenOf returns how much of a file a text shows that is its content.
func seenOf(got sandbox.Text, r sandbox.Range) Seen {
	switch {
	case r.From <= 1 && (got.Size == 0 || r.To == 0 && !got.Cut):
		return SeenWhole
	case got.Content == "":
		return SeenNothing
	}
	return SeenPart
}

func readFile(o Options) agent.Tool {
	type args struct {
		Path  string `json:"path"`
		Start *int   `json:"start_line"`
		End   *int   `json:"end_line"`
	}
	limit := orInt(o.ReadLimit, readLimit)
	return agent.Tool{
		Name: "read_file", Description: "Reads a text file, or some of its lines.",
		Schema: schema(description, arg{"path", text, "Absolute path of the file.", false}, arg{"start_line", integerOrNull, "First line, counted from 1; the first when left out.", true},
			arg{"end_line", integerOrNull, "Last line, included; the last when left out.", true}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			setSeen(ctx, SeenNothing)
			var r sandbox.Range
			switch {
			case a.Start != nil && *a.Start < 1:
				return "(start_line must be >= 1)", nil
			case a.End != nil && *a.End < 1:
				return "(end_line must be >= 1)", nil
			case a.Start != nil && a.End != nil && *a.Start > *a.End:
				return "(start_line > end_line: no lines in range)", nil
			}
			if a.Start != nil {
				r.From = *a.Start
			}
			if a.End != nil {
				r.To = *a.End
			}
			got, err := s.Read(ctx, a.Path, r, limit)
			switch {
			case errors.Is(err, sandbox.ErrBinary):
				return "Error: Cannot read '" + a.Path + "' as text: it is a binary file. Use bash with a program for its format, or view_image for images.", nil
			case err != nil:
				return explain(ctx, err, "File", a.Path, " reading file")
			}
			setSeen(ctx, seenOf(got, r))
			switch {
			case got.Content == "" && r.From > 1:
				return "(start_line exceeds file length)", nil
			case got.Content == "":
				return "(empty)", nil
			case got.Cut:
				head := sandbox.Head(got.Content, max(0, limit-200))
				return head + fmt.Sprintf("\n... [truncated: showing first %d chars of a file of %d bytes. Use start_line/end_line to read a specific range] ...", utf8.RuneCountInString(head), got.Size), nil
			}
			return got.Content, nil
		}),
	}
}

func writeFile(o Options) agent.Tool {
	type args struct {
		Path    string `json:"path"`
		Content string `json:"content"`
		Append  bool   `json:"append"`
	}
	return agent.Tool{
		Name:        "write_file",
		Description: "Writes a text file, and the directories above it. It replaces the file, or adds to its end with append. Write at most 80 KB at once: more in several calls with append.",
		Schema: schema(description, arg{"path", text, "Absolute path of the file.", false}, arg{"content", text, "The text.", false},
			arg{"append", boolean, "Whether the text is added to the end; false when left out.", true}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			if n := len(a.Content); !a.Append && n > maxWrite {
				return fmt.Sprintf("Error: write_file content (%d bytes) exceeds the %d-byte single-call limit. Write the first part now, and add the others with append=true.", n, maxWrite), nil
			}
			if err := s.Write(a.Path, a.Content, a.Append); err != nil {
				return explain(ctx, err, "File", a.Path, " writing to file")
			}
			return "OK", nil
		}),
	}
}

func strReplace(o Options) agent.Tool {
	type args struct {
		Path string `json:"path"`
		Old  string `json:"old_str"`
		New  string `json:"new_str"`
		All  bool   `json:"replace_all"`
	}
	return agent.Tool{
		Name: "str_replace", Description: "Replaces a text in a file. It must be in the file exactly once, unless all of its places are replaced.",
		Schema: schema(description, arg{"path", text, "Absolute path of the file.", false}, arg{"old_str", text, "The text to replace.", false}, arg{"new_str", text, "The text in its place.", false},
			arg{"replace_all", boolean, "Whether all places are replaced; false when left out.", true}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			if a.Old == "" {
				return "Error: old_str is empty", nil
			}
			err := s.Replace(a.Path, a.Old, a.New, a.All)
			switch {
			case errors.Is(err, sandbox.ErrNotFound):
				return "Error: String to replace not found in file: " + a.Path, nil
			case errors.Is(err, sandbox.ErrAmbiguous):
				return "Error: String to replace is not unique in file: " + a.Path + ". Add more of the text around it, or set replace_all.", nil
			case err != nil:
				return explain(ctx, err, "File", a.Path, " writing to file")
			}
			return "OK", nil
		}),
	}
}
