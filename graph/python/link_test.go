package python

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/child"
	"understudy/internal/seedtest"
)

// forced makes workers of a test connect, as they do on Windows.
const forced = "UNDERSTUDY_TEST_LOOPBACK"

func init() { child.Loopback = child.Loopback || os.Getenv(forced) != "" }

// again are tests of what a socket of another kind could break: frames in both directions, many and large ones, and the ends of either side. The frames
// themselves are the same; with make test-all the other tests of messages and of starts run again too.
const (
	again  = "TestLoopback|TestOneWorker|TestManyAtOnce|TestDeadWorkerIsReplaced|TestBlockedWorkerIsKilledAfterACancel|TestStopEndsRuns|TestEndlessEvents|TestNoWorkerStarts"
	others = "|TestCheckpointerConformance|TestIsolated|TestNothingOnDisk|TestWorkersThatCannotStart|TestWorkerCodeThatFails"
)

// The tests of this package pass too when workers connect rather than inherit their socket.
func TestLoopback(t *testing.T) {
	t.Parallel()
	if child.Loopback {
		return
	}
	if testing.Short() {
		t.Skip("it runs the others again")
	}
	tests := again
	if os.Getenv(seedtest.Variable) != "" {
		tests += others
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.timeout=10m", "-test.parallel=2", "-test.run=^("+tests+")$") //nolint:noctx // ends with the test
	cmd.Env = append(os.Environ(), forced+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestLoopback ")
}
