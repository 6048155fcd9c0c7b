//go:build !unix

package connection

import "net"

func descriptor(net.Conn) int { return -1 }

func crowding(_, _, _ int) (tooMany, high bool) { return false, false }
