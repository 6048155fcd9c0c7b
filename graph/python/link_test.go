package python

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/child"
)

// forced makes workers of a test connect, as they do on Windows.
const forced = "UNDERSTUDY_TEST_LOOPBACK"

func init() { child.Loopback = child.Loopback || os.Getenv(forced) != "" }

// again are tests of all that workers and the server say to each other.
const again = "^(TestLoopback|TestOneWorker|TestCheckpointerConformance|TestManyAtOnce|TestDeadWorkerIsReplaced|TestIsolated|TestBlockedWorkerIsKilledAfterACancel|" +
	"TestStopEndsRuns|TestNothingOnDisk|TestEndlessEvents|TestNoWorkerStarts|TestWorkersThatCannotStart|TestWorkerCodeThatFails)$"

// The tests of this package pass too when workers connect rather than inherit their socket.
func TestLoopback(t *testing.T) {
	t.Parallel()
	if child.Loopback {
		return
	}
	if testing.Short() {
		t.Skip("it runs the others again")
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.timeout=10m", "-test.parallel=2", "-test.run="+again) //nolint:noctx // ends with the test
	cmd.Env = append(os.Environ(), forced+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestLoopback ")
}
