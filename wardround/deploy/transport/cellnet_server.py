"""The coordinator's end of all connections: one thread for hundreds of sites, in place of FLARE's two for each.

FLARE's own server keeps a thread of a pool of a hundred busy for as long as a site is connected, so the 101st is never
heard. Here all connections share one event loop; what arrives is handed to CellNet's pool as before.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerServicer, add_StreamerServicer_to_server
from nvflare.fuel.f3.drivers.grpc.utils import get_grpc_server_credentials
from nvflare.fuel.f3.drivers.net_utils import get_address

from wardround.deploy.transport.cellnet_frames import Frame

GRACE = 0.5
"""Seconds that connections have to close."""


class LoopConnection(Connection):  # type: ignore[misc]
    """One site; frames to it may be sent from any thread."""

    def __init__(self, connector: Any, properties: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(connector)
        self._properties, self._loop = properties, loop
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._number = 0
        self._task = asyncio.current_task(loop)
        self.closing = False

    def get_conn_properties(self) -> dict[str, Any]:
        return self._properties

    def send_frame(self, pieces: Any) -> None:
        if self.closing:
            raise CommError(CommError.CLOSED, "the connection is closed")
        self._number = (self._number + 1) & 0x7FFFFFFF
        self._put(Frame(self._number, pieces))

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._put(None)
            with suppress(RuntimeError):  # a line that does not move would keep the last frames for ever
                self._loop.call_soon_threadsafe(self._loop.call_later, GRACE, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _put(self, frame: Frame | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, and all connections with it
            self._loop.call_soon_threadsafe(self._frames.put_nowait, frame)

    async def frames(self) -> AsyncIterator[Frame]:
        """What is to be sent, until it is closed."""
        while (frame := await self._frames.get()) is not None:
            yield frame

    def receive(self, frame: Frame) -> None:
        if self.frame_receiver is not None:
            self.frame_receiver.process_frame(frame.data)


class LoopServicer(StreamerServicer):  # type: ignore[misc]
    """Answers FLARE's one method: a stream of frames each way."""

    def __init__(self, server: "LoopServer") -> None:
        self._server = server

    async def Stream(self, requests: Any, context: Any) -> AsyncIterator[Frame]:  # noqa: N802 - FLARE's name
        connector, driver = self._server.connector, self._server.driver
        properties = {
            DriverParams.PEER_ADDR.value: context.peer(),
            DriverParams.LOCAL_ADDR.value: get_address(connector.params),
        }
        names = context.auth_context().get("x509_common_name")
        if names:
            properties[DriverParams.PEER_CN.value] = names[0].decode("utf-8")
        loop = asyncio.get_running_loop()
        connection = LoopConnection(connector, properties, loop)
        reading = asyncio.ensure_future(self._read(requests, connection))
        try:
            # In a thread: whether an older connection of the same name still lives takes seconds to find out.
            await loop.run_in_executor(self._server.threads, driver.add_connection, connection)
            async for frame in connection.frames():
                yield frame
        finally:
            reading.cancel()
            connection.close()
            loop.run_in_executor(self._server.threads, driver.close_connection, connection)

    async def _read(self, requests: Any, connection: LoopConnection) -> None:
        try:
            async for frame in requests:
                if connection.closing:
                    break
                while connection.frame_receiver is None and not connection.closing:
                    await asyncio.sleep(0.005)  # it is being admitted
                connection.receive(frame)
        except Exception:
            pass
        finally:
            connection.close()


class LoopServer:
    """In place of FLARE's server, with its methods."""

    def __init__(self, driver: Any, connector: Any, max_workers: int, options: Any) -> None:
        self.driver, self.connector, self._options = driver, connector, options
        self.threads = ThreadPoolExecutor(min(16, max_workers), "wardround admission")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        """Serve until shut down."""
        try:
            asyncio.run(self._serve())
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(options=self._options)
        add_StreamerServicer_to_server(LoopServicer(self), server)
        params = self.connector.params
        server.add_secure_port(get_address(params), get_grpc_server_credentials(params))
        await server.start()
        await self._stop.wait()
        await server.stop(GRACE)

    def shutdown(self) -> None:
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
            self._ended.wait(2 * GRACE)
        self.threads.shutdown(wait=False, cancel_futures=True)
