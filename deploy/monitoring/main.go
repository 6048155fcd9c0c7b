// Monitoring writes the Grafana dashboard and the Prometheus alert rules next to it, from one list of what is watched.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . .

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: monitoring FOLDER")
		os.Exit(2)
	}
	for name, text := range map[string][]byte{"dashboard.json": dashboard(), "alerts.yaml": alertRules()} {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644); err != nil { //nolint:gosec // no secrets
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// alert is a rule; docs/monitoring.md has the same table.
type alert struct {
	name, expr, wait, severity, summary string
}

var alerts = []alert{
	{"DatabaseDown", `understudy_database_up == 0`, "1m", "critical", "requests fail; runs wait to save"},
	{"DatabaseRefuses", `understudy_database_writable == 0`, "1m", "critical", "its disk is full, or it is read-only; the log says which"},
	{"RedisDown", `understudy_redis_up == 0`, "1m", "critical", "Redis is down, full or read-only"},
	{"QueueWaits", `understudy_queue_wait_seconds > 30`, "5m", "warning", "add servers or workers"},
	{"Takeovers", `rate(understudy_takeovers_total[10m]) > 0`, "10m", "warning", "servers die or stall longer than a lease"},
	{"FencedWrites", `rate(understudy_fenced_writes_total{reason="lost"}[10m]) > 0`, "10m", "warning", "machines are paused or throttled"},
	{"WorkersDie", `rate(understudy_worker_deaths_total[10m]) > 0.01`, "10m", "warning", "a graph kills its process"},
	{"WorkersBlocked", `rate(understudy_worker_blocked_total[10m]) > 0.01`, "10m", "warning", "a graph blocks its event loop; `understudy dev` names the line"},
	{"RunsFail", `sum by (instance) (rate(understudy_runs_ended_total{status=~"error|timeout"}[10m])) / sum by (instance) (rate(understudy_runs_ended_total[10m])) > 0.05`, "15m", "warning", "graphs fail"},
	{"SlowWrites", `histogram_quantile(0.99, rate(understudy_storage_seconds_bucket{op="write"}[5m])) > 0.5`, "10m", "warning", "slow disk, or lock contention"},
	{"ConnectionsScarce", `rate(understudy_database_acquire_wait_seconds_total[5m]) > 1`, "10m", "warning", "raise `--database-connections`"},
	{"ReplayGaps", `rate(understudy_replay_gaps_total{missing="records"}[10m]) > 0`, "10m", "warning", "raise `--stream-memory`, `--resumable-ttl` or Redis memory"},
	{"RedisBehind", `understudy_redis_queue_bytes > 16e6`, "1m", "warning", "Redis is slow or full; at 32 MiB graphs wait"},
	{"StreamsLose", `rate(understudy_redis_records_dropped_total[5m]) > 0`, "1m", "critical", "streams have gaps"},
}

// alertRules is written by hand, since a YAML encoder would order keys otherwise; JSON strings are YAML.
func alertRules() []byte {
	var b strings.Builder
	b.WriteString("# Written by `go generate ./deploy/monitoring`; docs/monitoring.md explains each.\ngroups:\n  - name: understudy\n    rules:\n")
	for _, a := range alerts {
		fmt.Fprintf(&b, "      - alert: Understudy%s\n        expr: %s\n        for: %s\n        labels: {severity: %s}\n        annotations: {summary: %s}\n",
			a.name, quote(a.expr), a.wait, a.severity, quote(a.summary))
	}
	return []byte(b.String())
}

func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string can be encoded
	}
	return strings.TrimSpace(b.String())
}

// panel is a graph of the dashboard; queries by their legend.
type panel struct {
	title, unit string
	queries     [][2]string
}

// rows of the dashboard. What all servers report of the shared queue is shown once, by max.
var rows = []struct {
	title  string
	panels []panel
}{
	{"Runs", []panel{
		{"Queue", "short", [][2]string{
			{"pending", `max(understudy_runs_pending{$on})`}, {"due", `max(understudy_runs_due{$on})`}, {"running", `max(understudy_runs_running{$on})`},
		}},
		{"Wait of the first run", "s", [][2]string{
			{"due", `max(understudy_queue_wait_seconds{$on})`}, {"pending", `max(understudy_queue_longest_wait_seconds{$on})`},
		}},
		{"Runs ended", "ops", [][2]string{{"{{status}}", `sum by (status) (rate(understudy_runs_ended_total{$on}[$__rate_interval]))`}}},
		{"Attempts ended", "ops", [][2]string{{"{{outcome}}", `sum by (outcome) (rate(understudy_attempts_ended_total{$on}[$__rate_interval]))`}}},
		{"Duration of attempts", "s", quantiles("understudy_attempt_seconds")},
		{"Wait until the first claim", "s", quantiles("understudy_run_wait_seconds")},
		{"Jobs", "short", [][2]string{{"used {{instance}}", `understudy_jobs_used{$on}`}, {"of {{instance}}", `understudy_jobs{$on}`}}},
		{"Taken over, fenced", "ops", [][2]string{
			{"taken over", `sum(rate(understudy_takeovers_total{$on}[$__rate_interval]))`}, {"fenced: {{reason}}", `sum by (reason) (rate(understudy_fenced_writes_total{$on}[$__rate_interval]))`},
		}},
	}},
	{"Requests and streams", []panel{
		{"Requests", "reqps", [][2]string{{"{{status}}", `sum by (status) (rate(understudy_http_requests_total{$on}[$__rate_interval]))`}}},
		{"Duration of requests", "s", quantiles("understudy_http_request_seconds")},
		{"Open streams", "short", [][2]string{{"{{instance}}", `understudy_open_streams{$on}`}}},
		{"Events", "ops", [][2]string{{"{{instance}}", `rate(understudy_stream_events_total{$on}[$__rate_interval])`}}},
		{"Streams ended", "ops", [][2]string{{"{{reason}}", `sum by (reason) (rate(understudy_streams_ended_total{$on}[$__rate_interval]))`}}},
		{"Lag of streams", "s", quantiles("understudy_stream_lag_seconds")},
		{"Gaps", "ops", [][2]string{
			{"replay: {{missing}}", `sum by (missing) (rate(understudy_replay_gaps_total{$on}[$__rate_interval]))`},
			{"dropped: {{reason}}", `sum by (reason) (rate(understudy_subscribers_dropped_total{$on}[$__rate_interval]))`},
		}},
		{"Memory of bodies and answers", "bytes", [][2]string{{"bodies {{instance}}", `understudy_body_bytes{$on}`}, {"answers {{instance}}", `understudy_read_bytes{$on}`}}},
	}},
	{"Workers", []panel{
		{"Python processes", "short", [][2]string{{"{{state}}", `sum by (state) (understudy_workers{$on})`}}},
		{"Their memory", "bytes", [][2]string{{"{{instance}}", `understudy_worker_memory_bytes{$on}`}}},
		{"Deaths", "ops", [][2]string{{"{{cause}}", `sum by (cause) (rate(understudy_worker_deaths_total{$on}[$__rate_interval]))`}}},
		{"Event loops blocked, share of time", "percentunit", [][2]string{{"{{instance}}", `rate(understudy_worker_blocked_seconds_total{$on}[$__rate_interval])`}}},
	}},
	{"Database, Redis and process", []panel{
		{"Up", "short", [][2]string{{"database {{instance}}", `understudy_database_up{$on}`}, {"saves {{instance}}", `understudy_database_writable{$on}`}, {"Redis {{instance}}", `understudy_redis_up{$on}`}}},
		{"Storage", "s", [][2]string{{"{{op}} 99 %", `histogram_quantile(0.99, sum by (le, op) (rate(understudy_storage_seconds_bucket{$on}[$__rate_interval])))`}}},
		{"Connections to Postgres", "short", [][2]string{{"{{state}}", `sum by (state) (understudy_database_connections{$on})`}, {"at most", `sum(understudy_database_connections_max{$on})`}}},
		{"Redis: bytes to send", "bytes", [][2]string{{"{{instance}}", `understudy_redis_queue_bytes{$on}`}}},
		{"Memory of the server", "bytes", [][2]string{{"{{instance}}", `process_resident_memory_bytes{$on}`}}},
		{"CPU of the server", "percentunit", [][2]string{{"{{instance}}", `rate(process_cpu_seconds_total{$on}[$__rate_interval])`}}},
	}},
}

func quantiles(name string) (out [][2]string) {
	for _, q := range []string{"0.5", "0.99"} {
		out = append(out, [2]string{q, fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s_bucket{$on}[$__rate_interval])))", q, name)})
	}
	return out
}

type object = map[string]any

func dashboard() []byte {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	add := func(kind, title string, x, y, w, h int, more object) {
		p := object{"id": len(panels) + 1, "type": kind, "title": title, "gridPos": object{"x": x, "y": y, "w": w, "h": h}}
		for k, v := range more {
			p[k] = v
		}
		panels = append(panels, p)
	}
	y := 0
	for _, r := range rows {
		add("row", r.title, 0, y, 24, 1, nil)
		y++
		for i, p := range r.panels {
			var targets []object
			for n, q := range p.queries {
				expr := strings.ReplaceAll(q[1], "$on", `job=~"$job",instance=~"$instance"`)
				targets = append(targets, object{"refId": string(rune('A' + n)), "legendFormat": q[0], "expr": expr, "datasource": source})
			}
			add("timeseries", p.title, i%4*6, y+i/4*7, 6, 7, object{
				"datasource": source, "targets": targets, "fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []any{}},
			})
		}
		y += (len(r.panels) + 3) / 4 * 7
	}
	choice := func(name, of string) object {
		return object{
			"name": name, "type": "query", "datasource": source, "query": of, "refresh": 2, "includeAll": true, "multi": true, "allValue": ".*",
			"current": object{"text": "All", "value": "$__all"},
		}
	}
	text, err := json.MarshalIndent(object{
		"uid": "understudy", "title": "understudy", "tags": []string{"understudy"}, "schemaVersion": 39, "refresh": "30s", "editable": true,
		"time": object{"from": "now-3h", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus"},
			choice("job", "label_values(understudy_jobs, job)"),
			choice("instance", `label_values(understudy_jobs{job=~"$job"}, instance)`),
		}},
	}, "", " ")
	if err != nil {
		panic(err) // it is what can be encoded
	}
	return append(text, '\n')
}
