package skill

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// What an agent writes obeys the rules of archives and edits, is judged, and is in the history with its author.
func TestAgentChangesSkills(t *testing.T) {
	t.Parallel()
	s := library(t)
	a := Agent{Library: s.Library, User: "u", Thread: "t1"}
	ctx := t.Context()
	require.NoError(t, a.Create(ctx, "demo", front))
	require.True(t, fault.Is(a.Create(ctx, "demo", front), fault.Conflict))
	found, err := a.Patch(ctx, "demo", "Do it.", "Do it twice.", nil)
	require.NoError(t, err)
	require.Equal(t, 1, found)
	require.NoError(t, a.Edit(ctx, "demo", front+"More.\n"))
	require.NoError(t, a.WriteFile(ctx, "demo", "scripts/run.sh", "echo 1"))
	require.NoError(t, a.WriteFile(ctx, "demo", "scripts/run.sh", "echo 2"))
	require.NoError(t, a.RemoveFile("demo", "scripts/run.sh"))
	require.Equal(t, []string{"demo/SKILL.md", "demo/SKILL.md", "demo/SKILL.md", "demo/SKILL.md", "demo/scripts/run.sh", "demo/scripts/run.sh"}, s.judged)
	require.NoError(t, a.Delete("demo"))
	changes, err := s.History("u", "demo")
	require.NoError(t, err)
	var actions []string
	for _, c := range changes {
		actions = append(actions, c.Action+" "+c.File)
		require.Equal(t, "agent", c.Author)
		require.Equal(t, "t1", *c.Thread)
	}
	require.Equal(t, []string{"create SKILL.md", "patch SKILL.md", "edit SKILL.md", "write_file scripts/run.sh", "write_file scripts/run.sh", "remove_file scripts/run.sh", "delete SKILL.md"}, actions)
	require.Equal(t, "echo 1", *changes[4].Previous)
	require.Equal(t, "echo 2", *changes[5].Previous)
	require.Equal(t, []string{"users/u/.history/demo.jsonl"}, s.files(t))

	// A change of another file does not become the SKILL.md.
	require.NoError(t, a.Create(ctx, "demo", front))
	require.True(t, fault.Is(s.Rollback(ctx, "u", "demo", 4), fault.Invalid))
	require.NoError(t, s.Rollback(ctx, "u", "demo", 2))
}

// What is refused changes nothing.
func TestAgentIsRefused(t *testing.T) {
	t.Parallel()
	s := library(t)
	a := Agent{Library: s.Library, User: "u", Thread: "t1"}
	ctx := t.Context()
	require.NoError(t, a.Create(ctx, "demo", front))
	outside := filepath.Join(s.dir, "outside")
	require.NoError(t, os.Mkdir(outside, 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(s.User("u"), "demo", "assets")))
	before := s.files(t)
	two := 2
	patch := func(find string, expected *int) error {
		_, err := a.Patch(ctx, "demo", find, "x", expected)
		return err
	}
	for name, err := range map[string]error{
		"another name":   a.Create(ctx, "other", front),
		"no name":        a.Edit(ctx, "demo", "text"),
		"evil":           a.Edit(ctx, "demo", front+"EVIL"),
		"not judged":     a.Edit(ctx, "demo", front+"BROKEN"),
		"too long":       a.Edit(ctx, "demo", front+strings.Repeat("x", maxMarkdown)),
		"not there":      patch("nowhere", nil),
		"empty":          patch("", nil),
		"too few":        patch("Do it", &two),
		"breaks":         patch("name: demo", nil),
		"evil script":    a.WriteFile(ctx, "demo", "scripts/a.sh", "EVIL"),
		"binary":         a.WriteFile(ctx, "demo", "scripts/a.sh", "\x00"),
		"no UTF-8":       a.WriteFile(ctx, "demo", "scripts/a.sh", "\xff"),
		"climbs":         a.WriteFile(ctx, "demo", "scripts/../../a.sh", "x"),
		"absolute":       a.WriteFile(ctx, "demo", "/scripts/a.sh", "x"),
		"elsewhere":      a.WriteFile(ctx, "demo", "lib/a.sh", "x"),
		"a folder":       a.WriteFile(ctx, "demo", "scripts/", "x"),
		"a second skill": a.WriteFile(ctx, "demo", "references/skill.md", front),
		"none to remove": a.RemoveFile("demo", "scripts/a.sh"),
	} {
		var refused *Refused
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, before, s.files(t), name)
	}
	require.Error(t, a.WriteFile(ctx, "demo", "assets/a.txt", "x"), "through a link")
	require.Equal(t, before, s.files(t))
	for name, err := range map[string]error{
		"unknown": a.Edit(ctx, "none", strings.ReplaceAll(front, "demo", "none")), "of another user": Agent{Library: s.Library, User: "v"}.Edit(ctx, "demo", front), "nothing": a.Delete("none"),
	} {
		require.True(t, fault.Is(err, fault.NotFound), name)
	}
	public := filepath.Join(s.dir, "shared/public/shown")
	require.NoError(t, os.MkdirAll(public, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(public, File), []byte(strings.ReplaceAll(front, "demo", "shown")), 0o600))
	require.ErrorContains(t, a.Editable("shown"), "read-only")
	require.NoError(t, a.Create(ctx, "shown", strings.ReplaceAll(front, "demo", "shown")), "in place of the public one")
	require.NoError(t, a.Editable("shown"))
}

// A skill that changes while a patch is judged is not overwritten by what was judged.
func TestPatchOfWhatChanged(t *testing.T) {
	t.Parallel()
	s := library(t)
	a := Agent{Library: s.Library, User: "u", Thread: "t1"}
	require.NoError(t, a.Create(t.Context(), "demo", front))
	at := filepath.Join(s.User("u"), "demo", File)
	s.Judge = func(context.Context, string, string, bool) (Verdict, error) {
		return Verdict{Decision: "allow"}, os.WriteFile(at, []byte(front+"Meanwhile.\n"), 0o600)
	}
	_, err := a.Patch(t.Context(), "demo", "Do it.", "Do it twice.", nil)
	require.True(t, fault.Is(err, fault.Conflict))
	text, err := os.ReadFile(at)
	require.NoError(t, err)
	require.Equal(t, front+"Meanwhile.\n", string(text))
}
