package memlimit

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestContainer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no groups", nil, 0},
		{"v2, in a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		{"v2, no limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		{"v2, a limit above", map[string]string{
			"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/memory.max": "100\n", "sys/fs/cgroup/a.slice/b.service/memory.max": "200\n",
		}, 100},
		{"v1, path of the host", map[string]string{
			"proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
		}, 1000},
		{"v1, no limit", map[string]string{"proc/self/cgroup": "4:memory:/\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		{"odd lines", map[string]string{"proc/self/cgroup": "what\n\n0::\n", "sys/fs/cgroup/memory.max": "-1\n"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range tt.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, tt.want, Container(root), tt.name)
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	require.EqualValues(t, 2048*mb*9/10-128*mb-2*128*mb, Reserve{Workers: 2}.of(2048*mb))
	require.EqualValues(t, 2048*mb*9/10-128*mb-2*500*mb, Reserve{Workers: 2, WorkerBytes: 500 * mb}.of(2048*mb))
	require.EqualValues(t, 64*mb, Reserve{Workers: 2}.of(256*mb), "a quarter at least")
}

// A limit fits from where what is reserved takes nothing of what Go gets at least.
func TestFits(t *testing.T) {
	t.Parallel()
	for workers := range 9 {
		r := Reserve{Workers: workers, WorkerBytes: int64(workers) << 24}
		needed, fits := r.Fits(0)
		require.False(t, fits)
		for _, limit := range []int64{needed - 100, needed + 100} {
			_, fits := r.Fits(limit)
			require.Equal(t, limit > needed, fits)
			require.Equal(t, fits, r.of(limit) > limit/leastShare)
		}
	}
}
