package changes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Changes are the differences between two snapshots. The JSON is that of DeerFlow's rows.
type Changes struct {
	Version int      `json:"version"`
	Summary Summary  `json:"summary"`
	Files   []Change `json:"files"`
	Limits  Limits   `json:"limits"`
}

// Summary counts them.
type Summary struct {
	Created   int  `json:"created"`
	Modified  int  `json:"modified"`
	Deleted   int  `json:"deleted"`
	Links     int  `json:"symlink_created"`
	Additions int  `json:"additions"`
	Deletions int  `json:"deletions"`
	Truncated bool `json:"truncated"` // not everything was looked at, or is shown
}

// Change is what became of a file.
type Change struct {
	Path          string  `json:"path"`
	Root          string  `json:"root"`
	Status        string  `json:"status"` // created, modified, deleted or symlink_created
	Binary        bool    `json:"binary"`
	Sensitive     bool    `json:"sensitive"`
	SizeBefore    *int64  `json:"size_before"`
	SizeAfter     *int64  `json:"size_after"`
	SumBefore     *string `json:"sha256_before"`
	SumAfter      *string `json:"sha256_after"`
	Diff          string  `json:"diff"`
	DiffTruncated bool    `json:"diff_truncated"`
	DiffReason    *string `json:"diff_unavailable_reason"`
	Additions     int     `json:"additions"`
	Deletions     int     `json:"deletions"`
	Link          bool    `json:"symlink"`
	TargetBefore  *string `json:"symlink_target_before"`
	TargetAfter   *string `json:"symlink_target_after"`
}

// Compare returns what changed, by path; nil when nothing did.
func Compare(before, after *Snapshot, limits Limits) *Changes {
	out := &Changes{Version: 1, Files: []Change{}, Limits: limits}
	out.Summary.Truncated = before.truncated || after.truncated
	left, work := limits.DiffBytes, maxWork
	for _, name := range changed(before, after) {
		c := change(name, before.files[name], after.files[name], left, &work)
		left -= len(c.Diff)
		s := &out.Summary
		switch c.Status {
		case "created":
			s.Created++
		case "modified":
			s.Modified++
		case "deleted":
			s.Deleted++
		default:
			s.Links++
		}
		s.Additions += c.Additions
		s.Deletions += c.Deletions
		if c.DiffReason != nil && (*c.DiffReason == isLarge || *c.DiffReason == isTruncated) {
			s.Truncated = true
		}
		if len(out.Files) < limits.Files {
			out.Files = append(out.Files, c)
		} else {
			s.Truncated = true
		}
	}
	if len(out.Files) == 0 {
		return nil
	}
	return out
}

// Text says in a few words how much changed.
func (c *Changes) Text() string {
	s := c.Summary
	n, plural := s.Created+s.Modified+s.Deleted+s.Links, "s"
	if n == 1 {
		plural = ""
	}
	return fmt.Sprintf("%d file%s changed +%d -%d", n, plural, s.Additions, s.Deletions)
}

// Produced returns the files in outputs that were created or modified, by path.
func Produced(before, after *Snapshot) []string {
	var out []string
	for _, name := range changed(before, after) {
		if f := after.files[name]; f != nil && !f.link && rootOf(name) == "outputs" {
			out = append(out, name)
		}
	}
	return out
}

// changed returns the paths of files that are not the same, sorted. What one of two incomplete snapshots alone has seen says nothing.
func changed(before, after *Snapshot) []string {
	var out []string
	for name := range maps.Keys(before.files) {
		f := after.files[name]
		if f == nil && !after.truncated || f != nil && !same(before.files[name], f) {
			out = append(out, name)
		}
	}
	for name := range maps.Keys(after.files) {
		if before.files[name] == nil && !before.truncated {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func same(a, b *file) bool {
	switch {
	case a.link != b.link:
		return false
	case a.link && a.target != nil && b.target != nil:
		return *a.target == *b.target
	case a.sum != "" && b.sum != "":
		return a.sum == b.sum
	}
	return a.size == b.size && a.modified == b.modified
}

func rootOf(name string) string {
	root, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "/")
	return root
}

// change describes a file that was, is, or both. left is how many bytes of differences may still be shown, work as of unified.
func change(name string, before, after *file, left int, work *int) Change {
	is := after
	c := Change{Path: name, Root: rootOf(name), Status: "modified"}
	switch {
	case after == nil:
		c.Status, is = "deleted", before
	case after.link && (before == nil || !before.link):
		c.Status = "symlink_created"
	case before == nil:
		c.Status = "created"
	}
	c.Binary, c.Sensitive, c.Link = is.binary, is.sensitive, is.link
	was, now := "", ""
	var reasons []string
	if before != nil {
		was, c.SizeBefore, c.SumBefore, c.TargetBefore = before.text, &before.size, some(before.sum), before.target
		reasons = append(reasons, before.reason)
	}
	if after != nil {
		now, c.SizeAfter, c.SumAfter, c.TargetAfter = after.text, &after.size, some(after.sum), after.target
		reasons = append(reasons, after.reason)
	}
	for _, reason := range []string{isLink, isSensitive, isBinary, isLarge, isTruncated} {
		if slices.Contains(reasons, reason) {
			c.DiffReason = &reason
			return c
		}
	}
	c.Diff, c.Additions, c.Deletions = unified("a"+name, "b"+name, was, now, work)
	if len(c.Diff) > left {
		reason := isTruncated
		c.Diff, c.DiffTruncated, c.DiffReason = "", true, &reason
	}
	return c
}

func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
