// Package deploy has tests of the files for installations.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"understudy/internal/config"
)

// tool finds a program; CI has to have those that it is told about.
func tool(t *testing.T, name, variable string) string {
	t.Helper()
	if at := os.Getenv(variable); at != "" {
		return at
	}
	at, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: no %s (set %s)", name, variable)
	}
	return at
}

type object = map[string]any

// helm renders the chart with settings, and returns its objects by kind and name.
func helm(t *testing.T, set ...string) map[string]object {
	t.Helper()
	args := []string{"template", "r", "helm"}
	for _, s := range set {
		args = append(args, "--set-json", s)
	}
	var said bytes.Buffer
	cmd := exec.Command(tool(t, "helm", "UNDERSTUDY_TEST_HELM"), args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &said)
	all := map[string]object{}
	for dec := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var o object
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else {
			require.NoError(t, err)
		}
		if o != nil {
			all[at[string](t, o, "kind")+" "+at[string](t, o, "metadata", "name")] = o
		}
	}
}

// at returns what is at a path of keys and indexes.
func at[T any](t *testing.T, v any, path ...any) T {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(object)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	out, ok := v.(T)
	require.True(t, ok, "%v: %v", path, v)
	return out
}

func TestChart(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(tool(t, "helm", "UNDERSTUDY_TEST_HELM"), "lint", "--strict", "helm").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const several = `database={"secret":"db"}`
	for _, c := range []struct {
		name  string
		set   []string
		kinds []string
	}{
		{"one server", nil, []string{"Deployment r-understudy", "PersistentVolumeClaim r-understudy", "Service r-understudy"}},
		{"on a volume that is there", []string{`persistence.existingClaim="mine"`}, []string{"Deployment r-understudy", "Service r-understudy"}},
		{
			"several, and workers",
			[]string{several, `redis={"secret":"redis"}`, `replicas=3`, `workers.replicas=2`, `settings={"UNDERSTUDY_CONCURRENCY":0}`, `workers.settings={"UNDERSTUDY_CONCURRENCY":"40"}`},
			[]string{"Deployment r-understudy", "Deployment r-understudy-worker", "PodDisruptionBudget r-understudy", "Service r-understudy"},
		},
		{
			"everything",
			[]string{
				several, `ingress={"host":"a.example","tlsSecret":"tls","className":"nginx","annotations":{"a":"b","nginx.ingress.kubernetes.io/proxy-read-timeout":"60"}}`, `podMonitor.enabled=true`, `langgraph={"graphs":{}}`,
				`envFrom=[{"secretRef":{"name":"keys"}}]`, `graceSeconds=600`, `drainSeconds=30`, `podAnnotations={"a":"b"}`, `nodeSelector={"a":"b"}`, `tolerations=[{"key":"a"}]`,
				`affinity={"podAntiAffinity":{}}`, `imagePullSecrets=[{"name":"a"}]`, `image={"repository":"mine","tag":"1"}`, `resources={"limits":{"memory":"4Gi"}}`,
			},
			[]string{"ConfigMap r-understudy", "Deployment r-understudy", "Ingress r-understudy", "PodMonitor r-understudy", "Service r-understudy"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := helm(t, c.set...)
			var kinds []string
			for kind, o := range all {
				kinds = append(kinds, kind)
				if strings.HasPrefix(kind, "Deployment ") {
					checkPod(t, o)
				}
			}
			slices.Sort(kinds)
			require.Equal(t, c.kinds, kinds)
			if o, ok := all["Ingress r-understudy"]; ok {
				annotations := at[object](t, o, "metadata", "annotations")
				require.Equal(t, "60", annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"], "as the user wants")
				require.Equal(t, "3600", annotations["nginx.ingress.kubernetes.io/proxy-send-timeout"])
			}
			server := at[object](t, all["Deployment r-understudy"], "spec", "template", "metadata", "labels")
			for name, value := range at[object](t, all["Service r-understudy"], "spec", "selector") {
				require.Equal(t, value, server[name])
			}
		})
	}
	helm(t, `settings={"DATABASE_URL":"of a graph","PORT":"1"}`, `ingress={"host":"a.example","annotations":null}`)
	for _, set := range []string{`replicas=2`, `workers.replicas=1`, `settings={"UNDERSTUDY_CONCURRENCY":[1]}`, `settings={"UNDERSTUDY_GRACE":"9s"}`, `settings={"REDIS_URI":"redis://a"}`, `replica=1`} {
		_, err := exec.Command(tool(t, "helm", "UNDERSTUDY_TEST_HELM"), "template", "r", "helm", "--set-json", set).Output()
		require.Error(t, err, set)
	}
}

// checkPod checks what a pod is started with against what the program knows.
func checkPod(t *testing.T, deployment object) {
	t.Helper()
	pod := at[object](t, deployment, "spec", "template", "spec")
	container := at[object](t, pod, "containers", 0)
	known := map[string]bool{"config": true, "health-port": true}
	variables := map[string]bool{}
	for _, s := range config.Settings() {
		known[s.Flag], variables[s.Env] = true, true
	}
	args := at[[]any](t, container, "args")
	command := args[0].(string)
	require.Contains(t, []string{"serve", "worker"}, command)
	need := 0.0
	for _, arg := range args[1:] {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg.(string), "--"), "=")
		require.True(t, ok && known[name], arg)
		if name == "grace" || name == "drain" {
			d, err := time.ParseDuration(value)
			require.NoError(t, err)
			need += d.Seconds()
		}
	}
	require.Greater(t, float64(at[int](t, pod, "terminationGracePeriodSeconds")), need)
	concurrency := 0
	if env, ok := container["env"].([]any); ok {
		for _, e := range env {
			name := at[string](t, e, "name")
			require.True(t, variables[name], name)
			if name == "UNDERSTUDY_CONCURRENCY" {
				concurrency++
				require.Equal(t, map[string]string{"serve": "0", "worker": "40"}[command], at[string](t, e, "value"))
			}
		}
	}
	require.LessOrEqual(t, concurrency, 1)
	routes := map[string][]string{"serve": {"/ok", "/livez", "/readyz"}, "worker": {"/livez", "/livez", "/readyz"}}[command]
	for i, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		require.Equal(t, routes[i], at[string](t, container, probe, "httpGet", "path"))
		require.Equal(t, at[string](t, container, "ports", 0, "name"), at[string](t, container, probe, "httpGet", "port"))
	}
}

// The unit restarts as docs/operations.md advises.
func TestUnitRestartsAsDocumented(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("systemd/understudy.service")
	require.NoError(t, err)
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	_, advice, _ := strings.Cut(string(page), "```ini\n")
	advice, _, _ = strings.Cut(advice, "```")
	require.Contains(t, advice, "RestartPreventExitStatus=78\n")
	for line := range strings.Lines(advice) {
		require.Contains(t, string(unit), line)
	}
}

// systemd knows all of the unit, and finds little that it could do besides.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze := tool(t, "systemd-analyze", "UNDERSTUDY_TEST_SYSTEMD")
	text, err := os.ReadFile("systemd/understudy.service")
	require.NoError(t, err)
	started := regexp.MustCompile(`(?m)^ExecStart=\S+ `)
	require.Regexp(t, started, string(text))
	unit := filepath.Join(t.TempDir(), "understudy.service")
	require.NoError(t, os.WriteFile(unit, started.ReplaceAll(text, []byte("ExecStart=/bin/sh ")), 0o600))
	out, err := exec.Command(analyze, "verify", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
	out, err = exec.Command(analyze, "security", "--offline=yes", "--threshold=20", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
	grace := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindSubmatch(text)
	stop, err := time.ParseDuration(string(grace[1]) + "s")
	require.NoError(t, err)
	settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: map[string]string{}, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	require.Greater(t, stop, settings.Server.Grace)
}

// The context of a container build has all folders that the program is built from.
func TestContainerContext(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}", "./cmd/understudy")
	list.Dir = ".."
	out, err := list.Output()
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	text, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)
	folders := strings.Fields(string(out))
	require.Greater(t, len(folders), 20)
	for _, folder := range folders {
		folder, err := filepath.Rel(root, folder)
		require.NoError(t, err)
		for _, left := range strings.Fields(string(text)) {
			require.False(t, folder == left || strings.HasPrefix(folder, left+"/"), "%s is left out by %s", folder, left)
		}
	}
}
