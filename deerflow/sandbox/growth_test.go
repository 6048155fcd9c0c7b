package sandbox

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/cputest"
)

// Commands of the greatest length are judged at once, however they nest.
func TestJudgingIsFast(t *testing.T) {
	t.Parallel()
	th := &Thread{mounts: []*mount{{Mount: Mount{Virtual: UserData}}}}
	var commands []string
	for _, piece := range []string{"eval ", "$(", "((", "{ ", "( ", "`", "a|", "env ", "bash -c ", "\"$(", "${a:-", "[[ ( ", "if a; then ", "..", "/a ", "\\\"", "f(){ ", "$((", "<<E\n", "{a,", "!(", "case x in x) "} {
		commands = append(commands, strings.Repeat(piece, maxCommand/len(piece)))
	}
	for _, pair := range [][2]string{{"f(){ x|", "x;}"}, {"f(){ f|f&", "f;};"}, {"$(", ")"}, {"(", ")"}, {"{ ", ";}"}, {"\"$(", ")\""}, {"<(", ")"}, {"((", "))"}, {"${a:-", "}"}} {
		n := maxCommand / len(pair[0]+pair[1])
		commands = append(commands, "x "+strings.Repeat(pair[0], n)+"x"+strings.Repeat(pair[1], n), strings.Repeat("x "+pair[0]+"x"+pair[1]+"; ", n/3))
	}
	for _, command := range commands {
		took := cputest.Time(func() {
			Audit(command)
			_ = th.check(command)
		})
		require.Less(t, took, 5*time.Second, command[:20])
	}
}
