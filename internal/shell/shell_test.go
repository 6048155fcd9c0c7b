package shell_test

import (
	"math/rand/v2"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/shell"
)

// What is quoted is one word of the same text for a shell, and plain paths stay readable.
func TestQuote(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"", "a b", "it's", "~", "#a", `C:\x`}
	const letters = " \t\n'\"\\$&;()<>|*?[]{}!#~`=%^-_/.aé"
	for range 300 {
		word := make([]rune, 1+random.IntN(6))
		for i := range word {
			word[i] = []rune(letters)[random.IntN(len([]rune(letters)))]
		}
		words = append(words, string(word))
	}
	script, want := "printf '%s\\0'", ""
	for _, w := range words {
		script += " " + shell.Quote(w)
		want += w + "\x00"
	}
	out, err := exec.CommandContext(t.Context(), sh, "-c", script).Output()
	require.NoError(t, err)
	require.Equal(t, want, string(out))
	for _, plain := range []string{"/usr/bin/python3", ".venv/bin/python", "a-b_c.py", "https://host:1/x"} {
		require.Equal(t, plain, shell.Quote(plain))
	}
}
