package skill

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// Of skills with one name a user's comes before the deployment's, and in one folder the one whose path is last, as in DeerFlow. The log names both, once.
func TestSkillsOfOneName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(at string) {
		at = filepath.Join(dir, at)
		require.NoError(t, os.MkdirAll(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, File), []byte("---\nname: tea\ndescription: Makes tea.\n---\n"), 0o600))
	}
	var log bytes.Buffer
	l := &Library{
		Root: func() (string, error) { return filepath.Join(dir, "skills"), nil }, User: func(user string) string { return filepath.Join(dir, user) },
		Enabled: func(string, *Skill) (bool, error) { return true, nil }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	used := func(user string) string {
		var all []*Skill
		for range 2 { // the second time everything is known
			var err error
			all, err = l.List(user)
			require.NoError(t, err)
			require.Len(t, all, 1)
		}
		at, err := filepath.Rel(dir, all[0].Dir)
		require.NoError(t, err)
		return filepath.ToSlash(at)
	}
	names := func() (pairs []string) {
		for line := range strings.Lines(log.String()) {
			_, line, _ = strings.Cut(strings.ReplaceAll(line, dir+string(filepath.Separator), ""), "used=")
			line, _, _ = strings.Cut(line, " fix=")
			pairs = append(pairs, line)
		}
		log.Reset()
		return pairs
	}
	for _, step := range []struct {
		add, want string
		warnings  []string
	}{
		{"skills/custom/tea", "skills/custom/tea", nil},
		{"skills/public/a/b/tea", "skills/public/a/b/tea", []string{"skills/public/a/b/tea left_out=skills/custom/tea"}},
		{"skills/public/a!", "skills/public/a!", []string{"skills/public/a! left_out=skills/public/a/b/tea", "skills/public/a! left_out=skills/custom/tea"}},
		{"skills/public/Z", "skills/public/a!", []string{"skills/public/a! left_out=skills/public/Z"}},
		{"u/tea", "u/tea", []string{"u/tea left_out=skills/public/a!", "u/tea left_out=skills/custom/tea"}},
	} {
		write(step.add)
		require.Equal(t, step.want, used("u"), step.add)
		require.Equal(t, step.warnings, names(), step.add)
	}
	require.Equal(t, "skills/public/a!", used("v")) // whose log lines there were
	require.Empty(t, names())
	for range 10 { // users do not make each other's warnings news
		used("u")
		used("v")
	}
	require.Empty(t, names())
	scan := Scanner(filepath.Join(dir, "skills", "public"), slog.New(slog.DiscardHandler))
	require.Equal(t, filepath.Join(dir, "skills/public/a!"), scan()[0].Dir)
}

// While a model judges an archive, which may take minutes, other skills are installed, edited, listed and deleted. Of two archives with one name that are judged at once
// one is installed, as a whole.
func TestInstallWhileAnotherIsJudged(t *testing.T) {
	t.Parallel()
	s := library(t)
	ctx := t.Context()
	agent := Agent{Library: s.Library, User: "u", Thread: "t"}
	require.NoError(t, agent.Create(ctx, "other", strings.ReplaceAll(front, "demo", "other")))
	judging, decide := make(chan struct{}), make(chan struct{})
	s.Judge = func(_ context.Context, _, content string, _ bool) (Verdict, error) {
		if strings.Contains(content, "SLOW") {
			judging <- struct{}{}
			<-decide
		}
		return Verdict{Decision: "allow"}, nil
	}
	errs := make(chan error)
	install := func(text string) {
		archive := zipped(t, file{name: "demo/SKILL.md", text: front + text}, file{name: "demo/assets/a.txt", text: text})
		_, err := s.Install(ctx, "u", bytes.NewReader(archive), int64(len(archive)))
		errs <- err
	}
	for _, text := range []string{"SLOW 1", "SLOW 2"} {
		go install(text)
		<-judging
	}
	// What is being judged is not there, and holds up nothing.
	all, err := s.List("u")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, s.Edit(ctx, "u", "other", strings.ReplaceAll(front, "demo", "other")+"More.\n"))
	require.NoError(t, s.Delete("u", "other"))
	waiting, cancel := context.WithCancel(ctx) // two are judged at once; the next one waits, as long as its request
	cancel()
	third := zipped(t, file{name: "SKILL.md", text: strings.ReplaceAll(front, "demo", "third")})
	_, err = s.Install(waiting, "u", bytes.NewReader(third), int64(len(third)))
	require.ErrorIs(t, err, context.Canceled)
	fourth := zipped(t, file{name: "SKILL.md", text: strings.ReplaceAll(front, "demo", "fourth")})
	_, err = s.Install(ctx, "another", bytes.NewReader(fourth), int64(len(fourth))) // another user waits for none of them
	require.NoError(t, err)
	close(decide)
	first, second := <-errs, <-errs
	if first != nil {
		first, second = second, first
	}
	require.NoError(t, first)
	require.True(t, fault.Is(second, fault.Conflict), second)
	_, text, err := s.Read("u", "demo")
	require.NoError(t, err)
	asset, err := os.ReadFile(filepath.Join(s.User("u"), "demo", "assets", "a.txt"))
	require.NoError(t, err)
	require.Equal(t, front+string(asset), text)
	have, err := os.ReadDir(s.User("u"))
	require.NoError(t, err)
	require.Len(t, have, 2, "demo and the history are all that is there")
}

// However many users install skills that a model judges for minutes, others install theirs; one user may let a few wait, and not more. What takes half a GiB each is bounded.
func TestInstallWhileManyAreJudged(t *testing.T) {
	t.Parallel()
	s := library(t)
	ctx, cancel := context.WithCancel(t.Context())
	judging := make(chan struct{})
	s.Judge = func(ctx context.Context, _, content string, _ bool) (Verdict, error) {
		if strings.Contains(content, "SLOW") {
			judging <- struct{}{}
			<-ctx.Done()
			return Verdict{}, ctx.Err()
		}
		return Verdict{Decision: "allow"}, nil
	}
	install := func(ctx context.Context, user, name, text string) error {
		archive := zipped(t, file{name: "SKILL.md", text: strings.ReplaceAll(front, "demo", name) + text})
		_, err := s.Install(ctx, user, bytes.NewReader(archive), int64(len(archive)))
		return err
	}
	var all sync.WaitGroup
	for i := range 10 * maxInstallingOfUser {
		all.Go(func() { _ = install(ctx, fmt.Sprintf("u%d", i%10), fmt.Sprintf("s%d", i), "SLOW") })
	}
	for range 10 * maxInstallingOfUser {
		<-judging
	}
	require.NoError(t, install(t.Context(), "another", "quick", ""))
	for i := range maxWaitingOfUser - maxInstallingOfUser {
		all.Go(func() { _ = install(ctx, "u0", fmt.Sprintf("w%d", i), "") })
	}
	full := func() bool { return s.turns.Len() == 10*maxInstallingOfUser+maxWaitingOfUser-maxInstallingOfUser }
	require.Eventually(t, full, 10*time.Second, time.Millisecond)
	require.Equal(t, fault.Unavailable, fault.KindOf(install(t.Context(), "u0", "more", "")))

	for range maxInstalling { // those of other tests are small
		installing <- struct{}{}
	}
	waiting, stop := context.WithCancel(t.Context())
	stop()
	_, err := s.begin(waiting, "another", small+1)
	require.ErrorIs(t, err, context.Canceled)
	for range maxInstalling {
		<-installing
	}
	cancel()
	all.Wait()
	require.Zero(t, s.turns.Len())
}
