package webhook_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/run/webhook"
)

func TestWebhookAddresses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy webhook.Policy
		url    string
		ok     bool
	}{
		{webhook.Policy{}, "https://example.com/x", true},
		{webhook.Policy{}, "http://10.0.0.7:8080/x", true},
		{webhook.Policy{RefusePrivate: true}, "http://10.0.0.7:8080/x", false},
		{webhook.Policy{}, "http://127.0.0.1/x", false},
		{webhook.Policy{}, "http://localhost/x", false},
		{webhook.Policy{}, "http://[::1]/x", false},
		{webhook.Policy{}, "http://[::ffff:127.0.0.1]/x", false},
		{webhook.Policy{}, "http://169.254.169.254/latest", false},
		{webhook.Policy{}, "http://0.0.0.0/x", false},
		{webhook.Policy{AllowLoopback: true}, "http://127.0.0.1/x", true},
		{webhook.Policy{RequireHTTPS: true}, "http://example.com/x", false},
		{webhook.Policy{AllowedDomains: []string{"*.example.com"}}, "https://a.example.com/x", true},
		{webhook.Policy{AllowedDomains: []string{"*.example.com"}}, "https://example.org/x", false},
		{webhook.Policy{AllowedPorts: []int{443}}, "https://example.com/x", true},
		{webhook.Policy{AllowedPorts: []int{443}}, "https://example.com:8443/x", false},
		{webhook.Policy{}, "nowhere", false},
		{webhook.Policy{}, "http://", false},
		{webhook.Policy{}, "ftp://example.com", false},
		{webhook.Policy{}, "http://example.com/" + strings.Repeat("x", 5000), false},
	} {
		require.Equal(t, tt.ok, tt.policy.Check(tt.url) == nil, "%+v %s", tt.policy, tt.url)
	}
}

// Addresses that carry an IPv4 address are treated as that address.
func TestEmbeddedAddresses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"[64:ff9b::7f00:1]", "[64:ff9b::169.254.169.254]", "[::127.0.0.1]", "[::a9fe:a9fe]", "[::ffff:0:7f00:1]", "[::ffff:127.0.0.1]",
		"[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[64:ff9b:1::7f00:1]", "[64:ff9b:1:7f00:0:100::]",
	} {
		require.Error(t, (&webhook.Policy{}).Check("http://"+host+"/x"), host)
	}
	for _, host := range []string{"[64:ff9b::808:808]", "[2002:808:808::1]", "[2001:db8::1]", "[::808:808]"} {
		require.NoError(t, (&webhook.Policy{}).Check("http://"+host+"/x"), host)
	}
	require.Error(t, (&webhook.Policy{RefusePrivate: true}).Check("http://[64:ff9b::10.0.0.7]/x"))
}
