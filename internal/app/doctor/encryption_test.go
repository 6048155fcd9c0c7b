package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

func TestEncryption(t *testing.T) {
	t.Parallel()
	findings := func(keys int, jsonl string) (out []Verdict) {
		cfg := config.Default(config.Serve)
		for range keys {
			cfg.Keys = append(cfg.Keys, []byte("0123456789abcdef"))
		}
		cfg.History.JSONL = jsonl
		d := &doctor{}
		d.encryption(cfg)
		for _, f := range d.findings {
			out = append(out, f.Verdict)
		}
		return out
	}
	require.Empty(t, findings(0, "folder"))
	require.Equal(t, []Verdict{Fine}, findings(1, ""))
	require.Equal(t, []Verdict{Warning}, findings(2, ""))
	require.Equal(t, []Verdict{Fine, Warning}, findings(1, "folder"))
}
