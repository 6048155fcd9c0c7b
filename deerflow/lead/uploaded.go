package lead

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"understudy/deerflow/files"
	"understudy/graph/agent"
	"understudy/graph/pregel"
)

// Bounds of list_uploaded_files.
const (
	listedFiles = 20
	listedMost  = 100
	listedNames = 10_000 // files of the folder that are looked at
)

// listUploads is the tool by which an agent finds the files that came with earlier messages. Those of the run's own message are in front of it already.
func listUploads(dir func(user, thread string) string) agent.Tool {
	type args struct {
		Outline any `json:"include_outline,omitempty"`
		Most    int `json:"max_results,omitempty"`
	}
	t := agent.MustTool("list_uploaded_files", "Lists the files that the user sent with earlier messages, the newest first. Use it when the user speaks of earlier files without naming them. "+
		"The files of the newest message are in front of it, and a file whose name you know you can read.", func(ctx context.Context, a args) (any, error) {
		root, err := openUploads(ctx, dir)
		if err != nil {
			return nil, err
		}
		if root == nil {
			return map[string]any{"files": []any{}, "message": "No uploads directory for this thread."}, nil
		}
		defer root.Close()
		now, _, err := pregel.Get[[]map[string]any](agent.StateOf(ctx), uploadedKey)
		if err != nil {
			return nil, fmt.Errorf("read uploaded files: %w", err)
		}
		known := map[string]bool{}
		for _, f := range now {
			name, _ := f["filename"].(string)
			known[name] = true
		}
		list, err := earlier(root, known)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return map[string]any{"files": []any{}, "message": "No historical uploaded files in this thread."}, nil
		}
		most := min(max(cmp.Or(a.Most, listedFiles), 1), listedMost)
		wanted := outlinesOf(a.Outline)
		out := []map[string]any{}
		for _, f := range list[:min(len(list), most)] {
			entry := f.entry()
			if wanted(f.name) {
				switch o := outlineOf(root, f.upload); {
				case len(o.headings) > 0:
					entry["outline"] = o.headings
				case len(o.first) > 0:
					entry["outline_preview"] = o.first
				}
			}
			out = append(out, entry)
		}
		result := map[string]any{"files": out, "total_count": len(list), "message": fmt.Sprintf("Found %d historical file(s).", len(list))}
		if len(list) > len(out) {
			result["truncated"], result["omitted_summary"] = true, kinds(list[len(out):])
		}
		return result, nil
	})
	t.Schema = json.RawMessage(`{"type":"object","properties":{
		"include_outline":{"anyOf":[{"type":"boolean"},{"type":"array","items":{"type":"string"}}],"default":false,"description":"Whose headings or first lines to add: true for all documents, or names of some."},
		"max_results":{"type":"integer","default":20,"description":"Files to list, at most 100."}}}`)
	return t
}

// outlinesOf reports whose outlines an argument asks for: true, names, or names as text.
func outlinesOf(v any) func(name string) bool {
	if text, ok := v.(string); ok {
		var list any
		if json.Unmarshal([]byte(text), &list) == nil {
			v = list
		} else {
			v = []any{text}
		}
	}
	switch v := v.(type) {
	case bool:
		return func(string) bool { return v }
	case []any:
		return func(name string) bool { return slices.Contains(v, any(name)) }
	}
	return func(string) bool { return false }
}

// dated is a file with the time when it came.
type dated struct {
	upload
	at time.Time
}

// earlier returns the files of a folder that are not known, the newest first, without those that conversion made.
func earlier(root *os.Root, known map[string]bool) ([]dated, error) {
	folder, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list uploaded files: %w", err)
	}
	defer folder.Close()
	all, err := entries(folder)
	if err != nil {
		return nil, err
	}
	stems := map[string]bool{} // of files that are no Markdown
	for _, e := range all {
		if ext := filepath.Ext(e.Name()); ext != ".md" {
			stems[strings.TrimSuffix(e.Name(), ext)] = true
		}
	}
	var list []dated
	for _, e := range all {
		stem, markdown := strings.CutSuffix(e.Name(), ".md")
		if !e.Type().IsRegular() || known[e.Name()] || files.IsStaging(e.Name()) || markdown && stems[stem] {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // deleted meanwhile
		}
		list = append(list, dated{upload{e.Name(), info.Size()}, info.ModTime()})
	}
	slices.SortFunc(list, func(a, b dated) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.name, b.name)) })
	return list, nil
}

// entries returns what is in a folder, up to listedNames. A folder that cannot be read is not an empty one: an agent would tell a person that there are no files.
func entries(folder interface {
	ReadDir(n int) ([]fs.DirEntry, error)
},
) ([]fs.DirEntry, error) {
	all, err := folder.ReadDir(listedNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list uploaded files: %w", err)
	}
	return all, nil
}

// kinds counts files by what their names end in.
func kinds(list []dated) string {
	counts := map[string]int{}
	for _, f := range list {
		counts[cmp.Or(strings.ToLower(filepath.Ext(f.name)), "(no extension)")]++
	}
	var parts []string
	for _, ext := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[ext], ext))
	}
	return strings.Join(parts, ", ")
}
