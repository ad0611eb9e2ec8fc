"""One robot: it drives towards the meeting point while its agent is still working it out.

python robot.py robot-2 7.5 1.0     in a directory with fleet.toml, robot-2.key and robot-2.crt, and
                                    the others' certificates in trusted/

The fleet meets where the sum of squared distances from all starts is smallest. No robot tells its
start: only the agent's messages leave the robot.
"""

import asyncio
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hushgrad as hg
from hushgrad.network import parse_config

PERIOD = 0.02  # seconds between two commands to the wheels
SPEED = 8.0  # metres per second
REACHED = 0.01  # metres


@dataclass
class Robot:
    """A robot's position and target: here on paper, in earnest wheels and odometry."""

    position: np.ndarray
    target: np.ndarray
    driven: float = 0.0

    @property
    def way(self):
        return self.target - self.position

    def drive(self):
        """Towards the target, for one period."""
        distance = np.linalg.norm(self.way)
        step = min(distance, SPEED * PERIOD)
        if distance:
            self.position = self.position + step / distance * self.way
        self.driven += step


def agent_of(name, start, fleet):
    """The agent of one robot, from the fleet's file and the robot's start."""
    robots = fleet["robots"]
    numbers = {other: n for n, other in enumerate(robots)}
    partners = hg.masks.zero_sum().partners(numbers[name], len(robots))
    config = parse_config(
        {
            "agent": {
                "name": name,
                "number": numbers[name],
                "listen": robots[name]["address"],
                "durability": "process",
            },
            "objective": {"kind": "rendezvous", "position": list(start)},
            "neighbour": [
                {"name": other, "number": numbers[other], "address": robots[other]["address"]}
                for other in robots[name]["neighbours"]
            ],
            "partner": [{"name": list(robots)[n], "number": n} for n in partners],
            "run": {
                "id": fleet["run"],
                "n_agents": len(robots),
                "dim": 2,
                "iterations": 5000,
                "tolerance": 1e-6,
                "eta": 0.3334,  # of a ring of four; it lets masks hide curvature too
            },
            "algorithm": {"name": "PDGNDS", "stepsize": {"kind": "constant", "value": 0.03}},
        },
        directory=Path.cwd(),
    )
    return hg.Agent(config)


async def think(agent, robot):
    """Follow the agent's estimate of the meeting point."""
    async for _, x in agent:
        robot.target = x
        await asyncio.sleep(0.002)  # the robot has other things to do, too


async def main(name, start):
    fleet = tomllib.loads(Path("fleet.toml").read_text(encoding="utf-8"))
    robot = Robot(position=np.array(start), target=np.array(start))
    thinking = asyncio.create_task(think(agent_of(name, start, fleet), robot))
    while not thinking.done() or np.linalg.norm(robot.way) > REACHED:
        robot.drive()
        await asyncio.sleep(PERIOD)
    thinking.result()  # raises the error that ended the agent early
    x, y = robot.position
    print(f"{name} is at ({x:.3f}, {y:.3f}) after {robot.driven:.1f} m")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], [float(sys.argv[2]), float(sys.argv[3])]))
