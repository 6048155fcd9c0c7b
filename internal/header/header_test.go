package header

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSelects(t *testing.T) {
	t.Parallel()
	f := Filter{Includes: []string{"X-*-id", "user-agent", "authorization", "x-Named-Token"}, Excludes: []string{"x-INTERNAL-*"}}
	for name, want := range map[string]bool{
		"X-Tenant-Name-Id": true, "x-id": false, "user-agent": true, "x-internal-id": false, "Authorization": false, "accept": false,
		"x-named-token": true, "X-Token-Id": false,
	} {
		require.Equal(t, want, f.Selects(name), name)
	}
	require.True(t, f.Withholds("x-token-id"))
	require.False(t, f.Withholds("x-named-token"))
	require.False(t, f.Withholds("cookie"))
	require.False(t, Filter{}.Selects("x-id"))
	all := Filter{Includes: []string{"*"}}
	for _, name := range []string{"langgraph_auth_user_id", "__pregel_resuming", "X-Goog-Api-Key", "x-session-token"} {
		require.False(t, all.Selects(name), name)
	}
}

// Whatever is configured, no header that authenticates passes, however it is spelled.
func TestCredentialsNeverPass(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		name := anyCase(random, credentials[random.IntN(len(credentials))])
		f := Filter{Includes: []string{pattern(random, name), pattern(random, name), "*"}}
		if random.IntN(2) == 0 {
			f.Excludes = []string{"x-nothing"}
		}
		require.False(t, f.Selects(name), "%s with %v", name, f)
		require.False(t, f.Withholds(name), "%s with %v", name, f)
	}
}

// FuzzMatches holds patterns against regular expressions.
func FuzzMatches(f *testing.F) {
	for _, s := range []string{"", "*", "x-*", "*-id", "x-*-*d", "**", "a.c", "x-[a]*"} {
		f.Add(s, "x-some-id")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 100 || len(name) > 100 || strings.ToValidUTF8(pattern, "") != pattern || strings.ToValidUTF8(name, "") != name {
			return
		}
		re := regexp.MustCompile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `\z`)
		require.Equal(t, re.MatchString(name), matches(pattern, name))
	})
}

func anyCase(random *rand.Rand, s string) string {
	b := []byte(s)
	for i := range b {
		if random.IntN(2) == 0 {
			b[i] = strings.ToUpper(string(b[i]))[0]
		}
	}
	return string(b)
}

// pattern makes a pattern that matches name: the name with wildcards in place of parts of it.
func pattern(random *rand.Rand, name string) string {
	for range random.IntN(3) {
		i := random.IntN(len(name) + 1)
		j := i + random.IntN(len(name)-i+1)
		name = name[:i] + "*" + name[j:]
	}
	return anyCase(random, name)
}
