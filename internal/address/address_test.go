package address_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/address"
)

func TestAllow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]bool{ // by default, with loopback, without private ranges
		"8.8.8.8":         {true, true, true},
		"127.0.0.1":       {false, true, false},
		"::1":             {false, true, false},
		"10.0.0.1":        {true, true, false},
		"fd00::1":         {true, true, false},
		"169.254.169.254": {false, false, false},
		"0.0.0.0":         {false, false, false},
		"224.0.0.1":       {false, false, false},
		"::ffff:10.0.0.1": {true, true, false},
		"64:ff9b::7f00:1": {false, true, false},
		"2001:db8::1":     {true, true, true},
	} {
		ip := netip.MustParseAddr(text)
		got := [3]bool{address.Rules{}.Allow(ip), address.Rules{AllowLoopback: true}.Allow(ip), address.Rules{RefusePrivate: true}.Allow(ip)}
		require.Equal(t, want, got, text)
	}
}

func TestDialer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = address.Rules{}.Dialer(time.Second).DialContext(t.Context(), "tcp", l.Addr().String())
	require.ErrorIs(t, err, address.ErrRefused)
	c, err := address.Rules{AllowLoopback: true}.Dialer(time.Second).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	c.Close()
}
