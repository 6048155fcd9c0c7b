package config

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/joho/godotenv"
	"github.com/stretchr/testify/require"

	"understudy/internal/cputest"
)

// manyLines are the mistakes of so many lines.
func manyLines(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(".env:%d: write NAME=value\n", i+1)
	}
	return text
}

func TestParseEnv(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"A=1\n\n# c\nnonsense s3cret\nB=2\n": ".env:4: write NAME=value",
		"A=1\nB=\"s3cret\nC=2\n":             ".env:2: the quote of its value has no end",
		"A=1\nB='s3cret":                     ".env:2: the quote of its value has no end",
		"A=\"x\ny\"\nB-C=s3cret\nD=1":        `.env:3: "-" cannot be part of a name; write NAME=value`,
		"s3cret":                             ".env:1: write NAME=value",
		"A=1\r\n\r\n=s3cret\r\n":             ".env:3: write NAME=value",
		"nonsense\nA=1\n\n=s3cret\nN-M=1\n":  ".env:1: write NAME=value\n.env:4: write NAME=value\n.env:5: \"-\" cannot be part of a name; write NAME=value",
		"nonsense\nB='s3cret\nN-M=1":         ".env:1: write NAME=value\n.env:2: the quote of its value has no end",
		"\xff\xfeA\x00=\x001\x00":            ".env: is UTF-16, as > of PowerShell writes it; save the file as UTF-8",
		"A=1\nB=\xe4":                        ".env:2:3: is not UTF-8 here; save the file as UTF-8",
		strings.Repeat("nonsense\n", 100):    strings.TrimSpace(manyLines(20)),
	} {
		_, all := parseEnv([]byte(text))
		var got []string
		for _, m := range all {
			m.File = ".env"
			got = append(got, m.String())
		}
		require.Equal(t, want, strings.Join(got, "\n"), text)
	}
}

// A bad line is named wherever it stands among good ones, which are read as the parser reads them.
func TestParseEnvFindsTheLine(t *testing.T) {
	t.Parallel()
	good := []string{"A%d=1", "# comment = %d", "", "export B%d=\"two\nlines\nof it\"", "C%d='a # b'", "D%d: yaml", "E%d=", "  F%d = spaces # comment", "G%d=${A1}x", "H%d=\"\\\"\""}
	bad := []string{"nonsense", "N-M=s3cret", "X=\"s3cret", "=s3cret"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var lines []string
		for n := range random.IntN(8) {
			line := good[random.IntN(len(good))]
			if strings.Contains(line, "%d") {
				line = fmt.Sprintf(line, n)
			}
			lines = append(lines, line)
		}
		before := strings.Join(append(lines, ""), "\n")
		want, err := godotenv.Unmarshal(before)
		require.NoError(t, err, before)
		got, m := parseEnv([]byte(before))
		require.Empty(t, m)
		require.Equal(t, want, got)
		text := before + bad[random.IntN(len(bad))] + "\n" + strings.Join(lines, "\n")
		if strings.Count(text, `"`)%2 == 0 && strings.Contains(text, `"s3cret`) {
			continue // the next quote ends the value
		}
		_, m = parseEnv([]byte(text))
		if m == nil && strings.Contains(text, `"s3cret`) {
			continue
		}
		require.NotEmpty(t, m, text)
		require.Equal(t, strings.Count(before, "\n")+1, m[0].Line, text)
		require.NotContains(t, fmt.Sprint(m), "s3cret")
	}
}

// Reading a file takes time that grows with it, and so does finding its bad line: a file of twice the size takes no four times as long.
func TestParseEnvIsLinear(t *testing.T) {
	took := func(lines int, last string) time.Duration {
		var text strings.Builder
		for n := range lines {
			fmt.Fprintf(&text, "A%d=\"value\nof %d\"\nB%d=1\n", n, n, n)
		}
		text.WriteString(last)
		for n := range lines {
			fmt.Fprintf(&text, "C%d=1 # it's\n", n)
		}
		least := time.Hour
		for range 5 {
			var m Mistakes
			least = min(least, cputest.Time(func() { _, m = parseEnv([]byte(text.String())) }))
			require.Equal(t, last != "", m != nil)
			if m != nil {
				require.Equal(t, 3*lines+1, m[0].Line)
			}
		}
		return least
	}
	for _, last := range []string{"", "nonsense\n", "X=\"s3cret\n", "=s3cret\n"} {
		one, four := took(500, last), took(2000, last)
		require.Less(t, four, 9*one, "%q: %s for 500 lines, %s for 2000", last, one, four)
	}
}
