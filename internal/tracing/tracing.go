// Package tracing sends spans where the standard variables of OpenTelemetry say, by OTLP over HTTP.
package tracing

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// FromEnv makes a provider when the environment asks for one: OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names a collector, or
// OTEL_TRACES_EXPORTER is otlp. nil: it does not. Shut the provider down: it sends what waits. Spans wait in a bounded queue; beyond that they
// are dropped. An error says what cannot be done.
func FromEnv(ctx context.Context, version string) (*sdk.TracerProvider, error) {
	if on, err := wanted(os.Getenv); err != nil || !on {
		return nil, err
	}
	c, err := newClient(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "understudy"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv()) // which may name the service otherwise
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about)), nil
}

// wanted reports whether traces are enabled, by OpenTelemetry's standard variables.
func wanted(getenv func(string) string) (bool, error) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return v
			}
		}
		return ""
	}
	if strings.EqualFold(first("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	exporter := first("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "":
		if first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
			return false, nil
		}
	case "none":
		return false, nil
	case "otlp":
	default:
		return false, fmt.Errorf("traces: OTEL_TRACES_EXPORTER is %q; write otlp or none", exporter)
	}
	if p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return false, fmt.Errorf("traces: the OTLP protocol is %q; this server supports http/protobuf, usually on port 4318", p)
	}
	return true, nil
}
