package e2e

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The linker leaves out methods that nothing calls, unless something that can run calls methods by names it does not know: text/template and html/template
// do when one of them can be executed, also by cobra (SetVersionTemplate and the like). Then all exported methods of all types stay, and the program is a
// fifth larger and takes 5 MB more memory.
func TestUnusedMethodsAreNotLinked(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	symbols, err := exec.Command("go", "tool", "nm", bin).Output()
	require.NoError(t, err)
	require.Contains(t, string(symbols), "github.com/redis/go-redis/v9.cmdable.XAdd\n", "the names of symbols have changed")
	require.NotContains(t, string(symbols), "github.com/redis/go-redis/v9.cmdable.GeoAdd\n", "find out what executes a template: go build -ldflags=-dumpdep and look for <ReflectMethod>")
}
