package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// Agents of the shared folder are those of all users, under what a user has of their own, and nothing changes them.
func TestSharedAgents(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	f := &Folder{Dir: func(user string) string { return filepath.Join(home, "users", user, "agents") }, Shared: filepath.Join(home, "agents")}
	names := func(user string) (list []string) {
		all, err := f.List(user)
		require.NoError(t, err)
		for _, a := range all {
			list = append(list, a.Name+": "+a.Description)
		}
		return list
	}
	require.Empty(t, names("ann"))
	put := func(dir, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, config), []byte(text), 0o600))
	}
	put(f.Shared, "cook", "name: cook\ndescription: shared")
	put(f.Shared, "old", "name: old\ndescription: shared")
	put(f.Shared, "No Agent", "name: x")
	require.NoError(t, os.MkdirAll(filepath.Join(f.Shared, "empty"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(f.Shared, "cook", soul), []byte("You cook."), 0o600))
	// A run of a shared agent leaves its memory in the user's folder. That is no agent of the user's.
	require.NoError(t, os.MkdirAll(filepath.Join(f.Dir("ann"), "cook"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(f.Dir("ann"), "cook", "memory.json"), []byte("{}"), 0o600))

	require.Equal(t, []string{"cook: shared", "old: shared"}, names("ann"))
	a, err := f.Get("ann", "cook")
	require.NoError(t, err)
	require.Equal(t, "You cook.", a.Soul)
	has, err := f.Has("ann", "empty")
	require.NoError(t, err)
	require.False(t, has)

	_, err = f.Change("ann", "cook", func(a *Agent) { a.Description = "changed" })
	require.True(t, fault.Is(err, fault.Conflict))
	require.True(t, fault.Is(f.Delete("ann", "cook"), fault.Conflict))
	require.True(t, fault.Is(f.Create("ann", &Agent{Name: "cook"}), fault.Conflict))
	require.True(t, fault.Is(f.Delete("ann", "none"), fault.NotFound))
	require.Equal(t, []string{"cook: shared", "old: shared"}, names("ben"))

	put(f.Dir("ann"), "old", "name: old\ndescription: own")
	require.Equal(t, []string{"cook: shared", "old: own"}, names("ann"))
	_, err = f.Change("ann", "old", func(a *Agent) { a.Description = "changed" })
	require.NoError(t, err)
	require.Equal(t, []string{"cook: shared", "old: changed"}, names("ann"))
	require.NoError(t, f.Delete("ann", "old"))
	require.Equal(t, []string{"cook: shared", "old: shared"}, names("ann"))

	// Without the shared one the name is free, and the memory stays.
	require.NoError(t, os.RemoveAll(f.Shared))
	require.NoError(t, f.Create("ann", &Agent{Name: "cook", Description: "new"}))
	require.FileExists(t, filepath.Join(f.Dir("ann"), "cook", "memory.json"))
	require.Equal(t, []string{"cook: new"}, names("ann"))
	require.True(t, fault.Is(f.Create("ann", &Agent{Name: "cook"}), fault.Conflict))
}

// An agent that cannot be read, of a user or of all, does not hide the others. The log names it, once until it changes.
func TestUnreadableAgents(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	var log bytes.Buffer
	f := &Folder{Dir: func(user string) string { return filepath.Join(home, user) }, Shared: filepath.Join(home, "agents"), Log: slog.New(slog.NewTextHandler(&log, nil))}
	put := func(dir, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, config), []byte(text), 0o600))
	}
	for _, dir := range []string{f.Dir("ann"), f.Shared} {
		put(dir, "broken", "name: [broken")
		put(dir, "good-of-"+filepath.Base(dir), "description: works")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "folder-of-"+filepath.Base(dir), config), 0o755))
	}
	put(f.Shared, "cook", "description: works")
	put(f.Dir("ann"), "cook", "description: {") // and does not have the one of all users
	names := func(user string) (list []string) {
		for range 3 {
			all, err := f.List(user)
			require.NoError(t, err)
			list = nil
			for _, a := range all {
				list = append(list, a.Name)
			}
		}
		return list
	}
	require.Equal(t, []string{"good-of-agents", "good-of-ann"}, names("ann"))
	require.Equal(t, 4, strings.Count(log.String(), "left out"), log.String())
	log.Reset()
	require.Equal(t, []string{"cook", "good-of-agents"}, names("ben"))
	require.Equal(t, 1, strings.Count(log.String(), "left out"), log.String()) // the shared one, which ann's own hid
	log.Reset()
	put(f.Dir("ann"), "broken", "description: works")
	put(f.Dir("ann"), "cook", "description: [")
	require.Equal(t, []string{"broken", "good-of-agents", "good-of-ann"}, names("ann"))
	require.Equal(t, 1, strings.Count(log.String(), "left out"), log.String()) // for another reason
}

// Servers that share a folder change the same agents at once: each change succeeds, or says that the agent is there already or not there.
func TestServersThatChangeAgentsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var working sync.WaitGroup
	for range 3 {
		f := &Folder{Dir: func(string) string { return dir }, Log: slog.New(slog.DiscardHandler)}
		for name, do := range map[string]func() error{
			"create": func() error { return f.Create("u", &Agent{Name: "a", Soul: "s"}) },
			"change": func() error {
				_, err := f.Change("u", "a", func(a *Agent) { a.Description = "d" })
				return err
			},
			"delete": func() error { return f.Delete("u", "a") },
			"list": func() error {
				_, err := f.List("u")
				return err
			},
		} {
			working.Go(func() {
				for range 100 {
					if err := do(); err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	working.Wait()
	f := &Folder{Dir: func(string) string { return dir }, Log: slog.New(slog.DiscardHandler)}
	if err := f.Delete("u", "a"); !fault.Is(err, fault.NotFound) {
		require.NoError(t, err)
	}
}
