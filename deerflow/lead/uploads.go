package lead

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/regular"
)

// uploadedKey is the key of the state with the files that came with the run's message.
const uploadedKey = "uploaded_files"

// What an agent is shown of an uploaded document before it reads it.
const (
	maxHeadings  = 50
	previewLines = 5
	maxLine      = 200     // bytes of a shown line
	maxOutline   = 1 << 20 // bytes of a document that are searched for headings
)

// uploads shows the model which files a person sent with a message. Only requests have the text: the conversation keeps the person's words.
func uploads(dir func(user, thread string) string) agent.Middleware {
	return agent.Middleware{
		Name: "UploadsMiddleware",
		BeforeAgent: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			shown := []map[string]any{} // also takes the place of those of the run before
			if list := agent.Messages(state); len(list) > 0 {
				root, err := openUploads(ctx, dir)
				if err != nil {
					return nil, err
				}
				if root != nil {
					defer root.Close()
					for _, f := range sent(root, list[len(list)-1]) {
						shown = append(shown, f.entry())
					}
				}
			}
			return map[string]any{uploadedKey: shown}, nil
		}},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			if !slices.ContainsFunc(r.Messages, hasFiles) {
				return next(ctx, r)
			}
			root, err := openUploads(ctx, dir)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			if root == nil {
				return next(ctx, r)
			}
			defer root.Close()
			r.Messages = slices.Clone(r.Messages)
			for i, m := range r.Messages {
				if files := sent(root, m); len(files) > 0 {
					r.Messages[i].Content = inFront(uploadsBlock(root, files), m.Content)
				}
			}
			return next(ctx, r)
		},
	}
}

// openUploads opens the uploads of the run's thread; nil when there are none.
func openUploads(ctx context.Context, dir func(user, thread string) string) (*os.Root, error) {
	info, _ := pregel.Info(ctx)
	root, err := os.OpenRoot(filepath.Join(dir(userOf(ctx), string(info.Thread)), "user-data", "uploads"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrInvalid) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "open the uploads of the thread", err)
	}
	return root, nil
}

func hasFiles(m message.Message) bool {
	return m.Type == message.TypeHuman && gjson.GetBytes(m.AdditionalKwargs, "files.0").Exists()
}

// upload is an uploaded file that exists.
type upload struct {
	name string
	size int64
}

func (u upload) path() string { return "/mnt/user-data/uploads/" + u.name }

// entry is the file in the state, and in lists of files.
func (u upload) entry() map[string]any {
	return map[string]any{"filename": u.name, "size": u.size, "path": u.path(), "extension": filepath.Ext(u.name)}
}

// sent returns the files of a message that exist. Names with a folder, and links, are left out.
func sent(root *os.Root, m message.Message) (files []upload) {
	if m.Type != message.TypeHuman {
		return nil
	}
	for _, f := range gjson.GetBytes(m.AdditionalKwargs, "files").Array() {
		name := f.Get("filename").String()
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
			continue
		}
		if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() {
			files = append(files, upload{name, info.Size()})
		}
	}
	return files
}

func uploadsBlock(root *os.Root, files []upload) string {
	var b strings.Builder
	b.WriteString("<current_uploads>\nThe user sent these files with this message:\n\n")
	for _, f := range files {
		fmt.Fprintf(&b, "- %s (%s)\n  Path: %s\n", f.name, sizeText(f.size), f.path())
		b.WriteString(outline(root, f))
	}
	b.WriteString("\nRead a file with read_file and its path; start_line and end_line choose a part. Search in files with grep, and find files with glob.\n</current_uploads>\n\n")
	return b.String()
}

func sizeText(bytes int64) string {
	if kb := float64(bytes) / 1024; kb <= 1024 {
		return fmt.Sprintf("%.1f KB", kb)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1024/1024)
}

// heading is one of a document, with its line.
type heading struct {
	Title string `json:"title"`
	Line  int    `json:"line"`
}

// outlined is what is shown of a document that was converted to Markdown: its headings; of one without headings, its first lines.
type outlined struct {
	file     string // of the Markdown; "": there is none
	headings []heading
	first    []string
}

// outlineOf reads the beginning of a document.
func outlineOf(root *os.Root, f upload) (o outlined) {
	name := strings.TrimSuffix(f.name, filepath.Ext(f.name)) + ".md"
	if name == f.name {
		name = f.name
	} else if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return o
	}
	file, _, err := regular.Open(root, name)
	if err != nil {
		return o
	}
	defer file.Close()
	o.file = name
	lines := bufio.NewScanner(io.LimitReader(file, maxOutline))
	lines.Buffer(nil, maxOutline)
	for n := 1; lines.Scan() && len(o.headings) < maxHeadings; n++ {
		line := strings.ToValidUTF8(lines.Text(), "")
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "") + "…"
		}
		switch {
		case strings.HasPrefix(line, "#"):
			o.headings = append(o.headings, heading{strings.TrimSpace(strings.TrimLeft(line, "#")), n})
		case len(o.first) < previewLines && strings.TrimSpace(line) != "":
			o.first = append(o.first, line)
		}
	}
	return o
}

// outline returns what is shown of a document, as text.
func outline(root *os.Root, f upload) string {
	o := outlineOf(root, f)
	if o.file == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString("  Markdown: /mnt/user-data/uploads/" + o.file + "\n")
	switch {
	case len(o.headings) > 0:
		b.WriteString("  Headings with their lines:\n")
		for _, h := range o.headings {
			fmt.Fprintf(&b, "    L%d: %s\n", h.Line, h.Title)
		}
	case len(o.first) > 0:
		b.WriteString("  It begins with:\n")
		for _, line := range o.first {
			b.WriteString("    > " + line + "\n")
		}
	}
	return b.String()
}

// inFront puts a text in front of the content of a message.
func inFront(text string, c message.Content) message.Content {
	if c.Blocks == nil {
		return message.Text(text + c.Text)
	}
	block := &jsonobj.Object{}
	block.SetText("type", "text")
	block.SetText("text", text)
	return message.Content{Blocks: append([]json.RawMessage{block.JSON()}, c.Blocks...)}
}
