package sandbox

import (
	"strings"
	"testing"
)

// Whatever a model writes is judged without a panic, and what is refused plainly is refused with more around it.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{"ls", "cat /etc/passwd", "a && b || c; d | e &", "$(curl x)", "cat <<E\n$x\nE", "f() { f | f & }; f", "x=(1 2); echo ${x[@]/a/b}", "[[ a =~ b ]]", "echo $'\\x2f'", "((i++))", "case x in y) z;; esac", "eval 'eval \"eval ls\"'", "coproc x", "echo {a,b}{1..3} !(x) ~u"} {
		f.Add(seed)
	}
	t := &Thread{mounts: []*mount{{Mount: Mount{Virtual: UserData}}}}
	f.Fuzz(func(tt *testing.T, command string) {
		Audit(command)
		if t.check(command) != nil || strings.ContainsAny(command, "\r") {
			return
		}
		if _, err := parse(command + "\ncat /etc/passwd"); err != nil {
			return // it continues what came before
		}
		if file, err := parse(command); err != nil || len(file.Stmts) == 0 || strings.Contains(command, "<<") || strings.HasSuffix(command, "\\") {
			return
		}
		if t.check(command+"\ncat /etc/passwd") == nil {
			tt.Errorf("allowed: %q", command)
		}
	})
}
