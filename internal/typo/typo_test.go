package typo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/typo"
)

func TestMeant(t *testing.T) {
	t.Parallel()
	known := []string{"graphs", "auth", "http", "store", "stope"}
	for name, want := range map[string]string{
		"graph": "graphs", "grpahs": "graphs", "gra": "", "atuh": "auth", "htp": "http", "x": "", "sto": "", "Auth": "auth", "oath": "", "bath": "", "graphics": "graphs", "": "",
	} {
		require.Equal(t, want, typo.Meant(name, known), name)
	}
}
