package settings

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfineIsChecked(t *testing.T) {
	t.Parallel()
	for value, good := range map[string]bool{
		"": true, "auto": true, "off": true, "required": true, "requird": false, "Required": false, "false": false, "no": false, `"of f"`: false,
	} {
		_, err := Parse([]byte("sandbox: {confine: "+value+"}"), nil)
		if good {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, "write auto, off or required", value)
		}
	}
}

// A sandbox that is at least as strict as the settings of now serves on; every other one refuses commands. Equal settings change nothing.
func TestSandboxRefusesUntilItIsAsStrictAsTheSettings(t *testing.T) {
	t.Parallel()
	pick := func(values ...string) string { return values[rand.IntN(len(values))] }
	draw := func() Sandbox {
		s := Sandbox{
			Use:     pick("", "deerflow.sandbox.local:LocalSandboxProvider", "deerflow.community.aio_sandbox:AioSandboxProvider", "deerflow.foo:Bar"),
			Confine: pick("", "auto", "off", "required"), Network: pick("", "none", "bridge"), Image: pick("a", "b"), Memory: pick("1g", "2g"), CPUs: pick("1", "2"),
			Replicas: rand.IntN(2), IdleTimeout: float64(rand.IntN(2)), BashTimeout: float64(rand.IntN(2)),
		}
		for _, path := range []string{"/a", "/b"} {
			if rand.IntN(2) == 0 {
				s.Readable = append(s.Readable, path)
			}
		}
		return s
	}
	// allows returns what a sandbox lets commands do.
	allows := func(s Sandbox) map[string]bool {
		can := map[string]bool{}
		switch s.Place() {
		case Here:
			can["run here"] = true
			can["run where there is no Landlock"] = s.Confine != "required"
			can["run without Landlock"] = s.Confine == "off"
			for _, path := range s.Readable {
				can["read "+path] = true
			}
		case Containers:
			can["use the network "+s.Network] = s.Network != "" && s.Network != "none"
		case Unknown:
		}
		return can
	}
	for range 5000 {
		started, now := draw(), draw()
		keys, _ := started.Changed(now)
		reason := started.Refusal(now)
		same, _ := started.Changed(started)
		require.Empty(t, same)
		if started.Place() == Unknown {
			require.Contains(t, reason, "is not known here")
			continue
		}
		if started.Place() == now.Place() || now.Place() == Here {
			want := false
			for what, can := range allows(started) {
				want = want || can && !allows(now)[what] && started.Place() == now.Place()
			}
			require.Equal(t, want, reason != "", "started %+v\nnow %+v\n%s", started, now, reason)
		} else {
			require.Contains(t, reason, "sandbox.use of config.yaml changed after the server started")
		}
		if reason != "" {
			require.NotEmpty(t, keys)
		}
	}
}
